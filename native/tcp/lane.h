// SPDX-License-Identifier: Apache-2.0
//
// One connection's share of a move: sends requests, takes the answers, until the move has no more. A move has one lane,
// or several if it is large. Never waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tcp/connection.h"
#include "tcp/cutter.h"
#include "tcp/vectors.h"
#include "tcp/wire.h"
#include "transports/transport.h"

namespace memfabric::tcp {

// Thread contract: one thread at a time, the one that drives the move. What a lane receives goes straight into the
// memory of the move's pieces, what it sends comes straight from there.
class Lane {
public:
    // What was given up towards this target before is fenced off first.
    Lane(std::unique_ptr<Connection> connection, Direction direction, Cutter& cutter);

    bool advance();  // true if something was moved or has changed
    // Whether the peer's kernel has taken bytes since the last look: on a slow network most of a write is in the
    // socket's buffer, and leaves it long after we have sent the last one.
    bool drains();
    bool done() const;
    bool checking() const { return unanswered_checks_ != 0 || cutter_.checks(); }  // if all of the move may be touched
    // Ends soon: nothing new is asked for. A write that was sent in part is given up, and its target sees that.
    void cancel();

    int fd() const { return connection_->fd(); }
    short awaited() const;  // of poll

    // Once done.
    Status status() const { return status_; }
    const std::string& reason() const { return reason_; }
    std::size_t moved_bytes() const { return moved_bytes_; }
    bool may_have_touched_more() const { return may_have_touched_more_; }
    const RemoteExtent& refused() const { return refused_; }
    // For the next move; nothing if it is no good any more. A write that has not been answered is given up then, also
    // if the connection has ended: whatever ended it here may have left its bytes on their way.
    std::unique_ptr<Connection> take_connection();

private:
    struct Asked {
        std::uint64_t sequence = 0;
        Cutter::Part part;
        std::span<const std::uint64_t> fenced;  // of a fence, which has no part

        bool moves() const { return part.size_bytes != 0; }
    };
    enum class Expecting : std::uint8_t { Nothing, Reply, Payload };

    bool send_some();
    bool receive_some();
    bool ask();
    void ask_for_fence();
    void send_request(Operation operation);
    void expect_reply();
    bool take_reply();
    bool reply_makes_sense() const;
    void reject_answer();
    void take_payload();
    void answered();
    void refuse(Verdict verdict, std::uint32_t piece);
    std::size_t attached_bytes() const {  // what comes behind the reply, if it is no refusal
        return payload_is_attached_ ? asked_.front().part.size_bytes + sizeof read_end_ : 0;
    }
    void lose(int error);
    void end(Status status, const std::string& reason);
    bool write() const { return direction_ == Direction::Write; }

    std::unique_ptr<Connection> connection_;
    const Direction direction_;
    Cutter& cutter_;
    const std::uint32_t move_;                   // its number on the connection
    const std::vector<std::uint64_t> given_up_;  // connections whose bytes must not come any more
    std::size_t fenced_ = 0;                     // so many of them were told to the target
    std::size_t unanswered_checks_ = 0;
    std::deque<Asked> asked_;  // and not answered, oldest first
    Request request_;
    std::vector<RemotePiece> further_;  // pieces of the request
    Vectors out_;
    Expecting expecting_ = Expecting::Nothing;
    bool payload_is_attached_ = false;  // to the reply that is expected: one system call for both
    Reply reply_;
    ReadEnd read_end_;
    Vectors in_;
    bool stopping_ = false;   // no new requests
    bool giving_up_ = false;  // the connection ends with what was sent
    bool broken_ = false;
    Status status_ = Status::Ok;
    std::string reason_;
    RemoteExtent refused_;
    std::size_t moved_bytes_ = 0;
    int queued_bytes_ = 0;  // in the socket's buffer at the last look
    bool may_have_touched_more_ = false;
};

}  // namespace memfabric::tcp
