// SPDX-License-Identifier: Apache-2.0
//
// The initiator's end of one data connection, from the first packet to the target's word that it is let in. Never
// waits.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/api.h"
#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/frames.h"
#include "tcp/channel.h"
#include "tls/identity.h"

namespace memfabric::tcp {

// Where a peer serves its memory, and what it wants to hear.
struct MF_API Target {
    sockaddr_storage address{};
    socklen_t address_bytes = 0;
    std::string name;  // "10.0.0.2:4711", for sentences
    Connect connect{};
    std::shared_ptr<const tls::Identity> identity;  // connections are encrypted

    // The host is a numeric address: nothing is looked up.
    static Status make(const SessionAddress& address, const Connect& connect,
                       std::shared_ptr<const tls::Identity> identity, Target& made);
};

// Thread contract: one thread at a time. The target outlives it.
class Connection {
public:
    enum class State : std::uint8_t { Connecting, Securing, Greeting, Ready, Failed };

    explicit Connection(const Target& target);

    State state() const { return state_; }
    bool advance();  // true if something has changed
    short awaited() const;
    int fd() const { return channel_.fd(); }
    Channel& channel() { return channel_; }
    const std::string& failure() const { return failure_; }  // once Failed
    const Target& target() const { return target_; }
    std::uint64_t number() const { return number_; }  // what the target calls it, once Ready
    std::uint64_t next_sequence() { return ++sequence_; }
    std::uint32_t next_move() { return ++move_; }

    bool is_quiet() const;  // ready, and the target has neither said anything nor gone
    void end_sending();     // the target sees an end behind what was sent
    void fail(const std::string& why);
    void fail(int error);

private:
    int begin_connecting();
    bool finish_connecting();
    bool secure();
    void greet();
    bool hear_answer();

    const Target& target_;
    State state_ = State::Connecting;
    Channel channel_;
    Bytes answer_;  // as far as it has come
    std::string failure_;
    std::uint64_t number_ = 0;
    std::uint64_t sequence_ = 0;  // of the last request
    std::uint32_t move_ = 0;      // the last one
};

}  // namespace memfabric::tcp
