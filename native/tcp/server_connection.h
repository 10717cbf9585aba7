// SPDX-License-Identifier: Apache-2.0
//
// The target's end of one data connection: reads requests, receives straight into the memory that they name and sends
// straight from it. Never waits: it does what the socket allows and says what it needs next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "endpoint/remote_descriptors.h"
#include "tcp/channel.h"
#include "tcp/exposure.h"
#include "tcp/fence.h"
#include "tcp/vectors.h"
#include "tcp/wire.h"

namespace memfabric::tcp {

// Thread contract: one thread, the server's. Memory is touched inside a rcu::ReadGuard around one system call, after a
// look at the fence and at the exposure: whoever takes it away waits for a moment, however slow the network is.
class ServerConnection {
public:
    enum class Progress : std::uint8_t {
        Blocked,  // until the socket has something to read, or room
        Over,     // there is more to do, after the others
        End,      // the peer has gone, or makes no sense
    };

    ServerConnection(Channel channel, RemoteDescriptors descriptors, std::shared_ptr<const Exposure> exposure,
                     std::unique_ptr<Fence> fence);

    Progress advance();

    int fd() const { return channel_.fd(); }
    const Exposure* exposure() const { return exposure_.get(); }

private:
    enum class State : std::uint8_t { Request, Pieces, Receive, Discard, Reply, Send, Pad, ReadEnd };
    enum class Step : std::uint8_t { Done, Blocked, End };

    Step step();
    Step read_request();
    Step read_pieces();
    Step receive_payload();
    Step discard_payload();
    Step send_reply();
    Step send_payload();
    Step pad_payload();
    Step send_read_end();

    bool accept_pieces();
    bool is_checked();
    bool is_exposed();
    void begin_reply(Verdict verdict);
    void give_up(Verdict verdict);
    void begin_request();
    Step fill(std::size_t wanted_bytes);
    Step flush();

    const RemoteDescriptors descriptors_;  // the channel's: they are free when it is closed
    Channel channel_;
    const std::shared_ptr<const Exposure> exposure_;
    const std::unique_ptr<Fence> fence_;  // behind the channel: it knows the socket
    State state_ = State::Request;
    Request request_;
    std::vector<RemotePiece> pieces_;
    std::optional<std::uint64_t> checked_generation_;  // of the exposure, that all pieces were covered in
    std::uint32_t refused_move_ = 0;
    Verdict verdict_ = Verdict::Done;
    std::uint32_t bad_piece_ = 0;
    std::size_t filled_bytes_ = 0;  // of the request, or of its pieces
    std::size_t payload_left_ = 0;  // to discard or to pad
    std::size_t turn_bytes_ = 0;    // moved in this turn
    Vectors payload_;
    Reply reply_;
    ReadEnd read_end_;
    Vectors out_;  // reply_ or read_end_
};

}  // namespace memfabric::tcp
