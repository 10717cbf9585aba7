// SPDX-License-Identifier: Apache-2.0
#include "tcp/server_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/pause_point.h"
#include "sync/rcu.h"
#include "tcp/socket.h"

namespace memfabric::tcp {
namespace {

// Of one system call, during which nobody unmaps; a piece stays whole, up to kMostPayloadBytes.
constexpr std::size_t kServerCallBytes = std::size_t{512} << 10;
constexpr std::size_t kTurnBytes = std::size_t{4} << 20;  // then it is another connection's turn

}  // namespace

ServerConnection::ServerConnection(Channel channel, RemoteDescriptors descriptors,
                                   std::shared_ptr<const Exposure> exposure, std::unique_ptr<Fence> fence)
    : descriptors_(std::move(descriptors)),
      channel_(std::move(channel)),
      exposure_(std::move(exposure)),
      fence_(std::move(fence)) {
    fence_->guard_socket(channel_.fd());
}

ServerConnection::Progress ServerConnection::advance() {
    turn_bytes_ = 0;
    while (turn_bytes_ < kTurnBytes) {
        switch (step()) {
            case Step::Done:
                continue;
            case Step::Blocked:
                return Progress::Blocked;
            case Step::End:
                return Progress::End;
        }
    }
    return Progress::Over;
}

ServerConnection::Step ServerConnection::step() {
    switch (state_) {
        case State::Request:
            return read_request();
        case State::Pieces:
            return read_pieces();
        case State::Receive:
            return receive_payload();
        case State::Discard:
            return discard_payload();
        case State::Reply:
            return send_reply();
        case State::Send:
            return send_payload();
        case State::Pad:
            return pad_payload();
        case State::ReadEnd:
            return send_read_end();
    }
    return Step::End;
}

void ServerConnection::begin_request() {
    state_ = State::Request;
    filled_bytes_ = 0;
}

// Until so many bytes of the request, or of its pieces, are there.
ServerConnection::Step ServerConnection::fill(std::size_t wanted_bytes) {
    auto* place = state_ == State::Request ? reinterpret_cast<std::byte*>(&request_)
                                           : reinterpret_cast<std::byte*>(pieces_.data() + 1);
    while (filled_bytes_ < wanted_bytes) {
        const ssize_t got = channel_.receive(place + filled_bytes_, wanted_bytes - filled_bytes_);
        if (got < 0 && would_block()) return Step::Blocked;
        if (got <= 0) return Step::End;
        filled_bytes_ += static_cast<std::size_t>(got);
    }
    return Step::Done;
}

ServerConnection::Step ServerConnection::read_request() {
    if (const Step step = fill(sizeof request_); step != Step::Done) return step;
    if (!is_well_formed(request_)) return Step::End;
    pieces_.resize(request_.piece_count);
    pieces_[0] = request_.first;
    filled_bytes_ = 0;
    state_ = State::Pieces;
    return Step::Done;
}

ServerConnection::Step ServerConnection::read_pieces() {
    if (const Step step = fill((pieces_.size() - 1) * sizeof(RemotePiece)); step != Step::Done) return step;
    if (request_.operation == Operation::Fence) {
        Fence::raise(exposure_.get(), pieces_);
        payload_.clear();
        bad_piece_ = 0;
        begin_reply(Verdict::Done);
        return Step::Done;
    }
    if (!accept_pieces()) return Step::End;
    verdict_ = Verdict::Done;
    bad_piece_ = 0;
    payload_left_ = request_.payload_bytes;
    checked_generation_.reset();
    const bool may_begin = is_checked();
    if (request_.operation != Operation::Write) {
        begin_reply(verdict_);
    } else {
        state_ = may_begin ? State::Receive : State::Discard;
    }
    return Step::Done;
}

// Before the first byte moves.
bool ServerConnection::is_checked() {
    if (refused_move_ != 0 && request_.move == refused_move_) {
        verdict_ = Verdict::NotExposed;
        return false;
    }
    refused_move_ = 0;
    const rcu::ReadGuard guard;
    return is_exposed();
}

// False: they do not add up.
bool ServerConnection::accept_pieces() {
    payload_.clear();
    for (const RemotePiece& piece : pieces_) {
        if (piece.size_bytes == 0) return false;
        if (request_.operation == Operation::Check) continue;
        if (piece.size_bytes > kMostPayloadBytes) return false;
        payload_.add(reinterpret_cast<const void*>(piece.address), piece.size_bytes);
    }
    return payload_.left_bytes() == request_.payload_bytes;
}

// Inside a guard. False: the verdict says why.
bool ServerConnection::is_exposed() {
    const std::uint64_t generation = exposure_->generation();
    if (generation == checked_generation_) return true;
    for (std::size_t i = payload_.passed(); i < pieces_.size(); ++i) {
        if (exposure_->covers(pieces_[i].address, pieces_[i].size_bytes)) continue;
        verdict_ = Verdict::NotExposed;
        bad_piece_ = static_cast<std::uint32_t>(i);
        return false;
    }
    checked_generation_ = generation;
    return true;
}

// What is left of the payload goes nowhere, or comes from nowhere.
void ServerConnection::give_up(Verdict verdict) {
    if (verdict != Verdict::NotExposed) bad_piece_ = static_cast<std::uint32_t>(payload_.passed());
    verdict_ = verdict;
    payload_left_ = payload_.left_bytes();
    state_ = request_.operation == Operation::Write ? State::Discard : State::Pad;
}

ServerConnection::Step ServerConnection::receive_payload() {
    while (payload_.left_bytes() != 0) {
        PausePoint::reach("tcp.server.receive");
        const rcu::ReadGuard guard;
        if (fence_->raised()) return Step::End;
        if (!is_exposed()) {
            give_up(verdict_);
            return Step::Done;
        }
        msghdr message = payload_.next(kServerCallBytes);
        const ssize_t got = channel_.receive(message);
        if (got > 0) {
            payload_.advance(static_cast<std::size_t>(got));
            turn_bytes_ += static_cast<std::size_t>(got);
            continue;
        }
        if (got < 0 && would_block()) return Step::Blocked;
        if (got == 0 || errno != EFAULT) return Step::End;
        give_up(Verdict::NotMapped);
        return Step::Done;
    }
    begin_reply(Verdict::Done);
    return Step::Done;
}

ServerConnection::Step ServerConnection::discard_payload() {
    while (payload_left_ != 0) {
        const ssize_t got = channel_.discard(payload_left_);
        if (got < 0 && would_block()) return Step::Blocked;
        if (got <= 0) return Step::End;
        payload_left_ -= static_cast<std::size_t>(got);
        turn_bytes_ += static_cast<std::size_t>(got);
    }
    begin_reply(verdict_);
    return Step::Done;
}

void ServerConnection::begin_reply(Verdict verdict) {
    const bool bytes_follow = verdict == Verdict::Done && request_.operation == Operation::Read;
    if (verdict != Verdict::Done) refused_move_ = request_.move;
    reply_ = {};
    reply_.verdict = verdict;
    reply_.piece = bad_piece_;
    reply_.sequence = request_.sequence;
    reply_.payload_bytes = bytes_follow ? request_.payload_bytes : 0;
    reply_.moved_bytes = request_.operation == Operation::Write ? request_.payload_bytes - payload_.left_bytes() : 0;
    out_.clear();
    out_.add(&reply_, sizeof reply_);
    state_ = State::Reply;
}

ServerConnection::Step ServerConnection::flush() {
    while (out_.left_bytes() != 0) {
        const msghdr message = out_.next(kServerCallBytes);
        const int more = state_ == State::Reply && reply_.payload_bytes != 0 ? MSG_MORE : 0;
        const ssize_t sent = channel_.send(message, more);
        if (sent < 0) return would_block() ? Step::Blocked : Step::End;
        out_.advance(static_cast<std::size_t>(sent));
    }
    return Step::Done;
}

ServerConnection::Step ServerConnection::send_reply() {
    if (const Step step = flush(); step != Step::Done) return step;
    if (reply_.payload_bytes == 0) {
        begin_request();
    } else {
        state_ = State::Send;
    }
    return Step::Done;
}

ServerConnection::Step ServerConnection::send_payload() {
    while (payload_.left_bytes() != 0) {
        PausePoint::reach("tcp.server.send");
        const rcu::ReadGuard guard;
        if (!is_exposed()) {
            give_up(verdict_);
            return Step::Done;
        }
        const msghdr message = payload_.next(kServerCallBytes);
        const ssize_t sent = channel_.send(message, MSG_MORE);
        if (sent > 0) {
            payload_.advance(static_cast<std::size_t>(sent));
            turn_bytes_ += static_cast<std::size_t>(sent);
            continue;
        }
        if (sent < 0 && would_block()) return Step::Blocked;
        if (sent == 0 || errno != EFAULT) return Step::End;
        give_up(Verdict::NotMapped);
        return Step::Done;
    }
    payload_left_ = 0;
    state_ = State::Pad;
    return Step::Done;
}

// The initiator was promised so many bytes, and is told behind them that they mean nothing.
ServerConnection::Step ServerConnection::pad_payload() {
    static constexpr std::array<std::byte, 4096> kZeroes{};
    while (payload_left_ != 0) {
        const std::size_t size_bytes = std::min(payload_left_, kZeroes.size());
        const ssize_t sent = channel_.send(kZeroes.data(), size_bytes, MSG_MORE);
        if (sent < 0) return would_block() ? Step::Blocked : Step::End;
        payload_left_ -= static_cast<std::size_t>(sent);
        turn_bytes_ += static_cast<std::size_t>(sent);
    }
    read_end_ = {verdict_, bad_piece_};
    out_.clear();
    out_.add(&read_end_, sizeof read_end_);
    state_ = State::ReadEnd;
    return Step::Done;
}

ServerConnection::Step ServerConnection::send_read_end() {
    if (const Step step = flush(); step != Step::Done) return step;
    begin_request();
    return Step::Done;
}

}  // namespace memfabric::tcp
