// SPDX-License-Identifier: Apache-2.0
#include "tcp/lane.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tcp/given_up.h"
#include "tcp/socket.h"

namespace memfabric::tcp {
namespace {

constexpr std::size_t kMostAsked = 32;  // requests that wait for their answers: bounds what is under way
constexpr std::size_t kLaneCallBytes = std::size_t{4} << 20;

std::string hexadecimal_address(std::uint64_t address) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%" PRIx64, address);
    return text;
}

}  // namespace

Lane::Lane(std::unique_ptr<Connection> connection, Direction direction, Cutter& cutter)
    : connection_(std::move(connection)),
      direction_(direction),
      cutter_(cutter),
      move_(connection_->next_move()),
      given_up_(GivenUp::process().of(connection_->target().connect.target)) {}

bool Lane::done() const {
    if (broken_) return true;
    return out_.left_bytes() == 0 && asked_.empty() && !giving_up_ && (stopping_ || cutter_.exhausted());
}

short Lane::awaited() const {
    if (connection_->state() != Connection::State::Ready) return connection_->awaited();
    const bool sends = out_.left_bytes() != 0 && !giving_up_;
    return static_cast<short>(POLLIN | (sends ? POLLOUT : 0));
}

bool Lane::advance() {
    if (done()) return false;
    if (connection_->state() != Connection::State::Ready) {
        const bool changed = connection_->advance();
        if (connection_->state() == Connection::State::Failed) {
            end(Status::NotConnected, connection_->failure());
        } else if (connection_->state() != Connection::State::Ready) {
            return changed;
        }
    }
    bool moved = false;
    while (!done() && send_some()) moved = true;
    while (!done() && receive_some()) moved = true;
    return moved || done();
}

bool Lane::drains() {
    int queued_bytes = 0;
    if (done() || ioctl(fd(), SIOCOUTQ, &queued_bytes) != 0) return false;
    return queued_bytes < std::exchange(queued_bytes_, queued_bytes);
}

bool Lane::send_some() {
    if (giving_up_ || (out_.left_bytes() == 0 && !ask())) return false;
    const msghdr message = out_.next(kLaneCallBytes);
    const ssize_t sent = connection_->channel().send(message);
    if (sent < 0) {
        if (!would_block()) lose(errno);
        return false;
    }
    out_.advance(static_cast<std::size_t>(sent));
    return true;
}

// The next request, if there is one and it may be sent.
bool Lane::ask() {
    if (stopping_ || asked_.size() >= kMostAsked || cutter_.exhausted()) return false;
    further_.clear();
    if (fenced_ != given_up_.size()) {
        ask_for_fence();
        return true;
    }
    Cutter::Part& part = asked_.emplace_back().part;
    cutter_.next(part);
    if (part.is_check) ++unanswered_checks_;
    for (const Piece& piece : part.pieces) further_.push_back({remote_of(direction_, piece), piece.size_bytes});
    send_request(part.is_check ? Operation::Check : write() ? Operation::Write : Operation::Read);
    if (write() && !part.is_check) {
        for (const Piece& piece : part.pieces) out_.add(piece.source, piece.size_bytes);
    }
    return true;
}

// Not waited for: the target does everything in its order.
void Lane::ask_for_fence() {
    const std::span<const std::uint64_t> left = std::span(given_up_).subspan(fenced_);
    const std::span<const std::uint64_t> numbers = left.first(std::min<std::size_t>(left.size(), kMostPieces));
    fenced_ += numbers.size();
    asked_.emplace_back().fenced = numbers;
    for (const std::uint64_t number : numbers) further_.push_back({number, 0});
    send_request(Operation::Fence);
}

// The last of asked_, about the further_ pieces.
void Lane::send_request(Operation operation) {
    Asked& asked = asked_.back();
    asked.sequence = connection_->next_sequence();
    request_ = {};
    request_.operation = operation;
    request_.piece_count = static_cast<std::uint32_t>(further_.size());
    request_.move = move_;
    request_.sequence = asked.sequence;
    request_.payload_bytes = asked.part.size_bytes;
    request_.first = further_[0];
    out_.clear();
    out_.add(&request_, sizeof request_);
    out_.add(further_.data() + 1, (further_.size() - 1) * sizeof(RemotePiece));
}

// Where the next answer goes. The bytes of a read can be received with it if no other answer can come behind a refusal.
void Lane::expect_reply() {
    in_.clear();
    in_.add(&reply_, sizeof reply_);
    expecting_ = Expecting::Reply;
    payload_is_attached_ = !write() && asked_.front().moves() && asked_.size() == 1 && out_.left_bytes() == 0 &&
                           (stopping_ || cutter_.exhausted());
    if (!payload_is_attached_) return;
    for (const Piece& piece : asked_.front().part.pieces) in_.add(piece.target, piece.size_bytes);
    in_.add(&read_end_, sizeof read_end_);
}

bool Lane::receive_some() {
    if (asked_.empty() && !giving_up_) return false;
    if (expecting_ == Expecting::Nothing) expect_reply();
    msghdr message = in_.next(kLaneCallBytes);
    const ssize_t got = connection_->channel().receive(message);
    if (got <= 0) {
        if (got < 0 && would_block()) return false;
        lose(got == 0 ? 0 : errno);
        return false;
    }
    in_.advance(static_cast<std::size_t>(got));
    if (expecting_ == Expecting::Reply && in_.left_bytes() <= attached_bytes() && !take_reply()) return true;
    if (expecting_ == Expecting::Payload && in_.left_bytes() == 0) take_payload();
    return true;
}

// Nobody who serves a move may choose what becomes of it here: a write brings no bytes back, a read exactly those that
// it asked for, a refusal none, and nothing is answered that was not sent to its end.
bool Lane::reply_makes_sense() const {
    const Asked& asked = asked_.front();
    const bool is_sent = asked_.size() > 1 || out_.left_bytes() == 0;
    if (reply_.magic != Reply::kMagic || reply_.sequence != asked.sequence || !is_sent) return false;
    const std::size_t written_bytes = write() ? asked.part.size_bytes : 0;
    if (reply_.verdict == Verdict::Done) {
        return reply_.moved_bytes == written_bytes && reply_.payload_bytes == asked.part.size_bytes - written_bytes;
    }
    const bool nothing_is_behind = in_.left_bytes() == attached_bytes();
    return is_refusal(reply_.verdict) && reply_.piece < asked.part.pieces.size() && reply_.payload_bytes == 0 &&
           reply_.moved_bytes <= written_bytes && nothing_is_behind;
}

void Lane::reject_answer() {
    may_have_touched_more_ |= in_.left_bytes() < attached_bytes();
    connection_->fail("carries answers that this version does not understand");
    end(Status::NotConnected, connection_->failure());
}

// False: the answer is complete.
bool Lane::take_reply() {
    const Cutter::Part& asked = asked_.front().part;
    const bool bytes_follow = reply_.payload_bytes != 0;
    if (!reply_makes_sense()) {
        reject_answer();
        return false;
    }
    if (!bytes_follow) {
        moved_bytes_ += reply_.moved_bytes;
        if (reply_.verdict != Verdict::Done) refuse(reply_.verdict, reply_.piece);
        answered();
        return false;
    }
    expecting_ = Expecting::Payload;
    if (payload_is_attached_) return true;
    in_.clear();
    for (const Piece& piece : asked.pieces) in_.add(piece.target, piece.size_bytes);
    in_.add(&read_end_, sizeof read_end_);
    return true;
}

void Lane::take_payload() {
    const Cutter::Part& asked = asked_.front().part;
    if (read_end_.verdict != Verdict::Done &&
        (!is_refusal(read_end_.verdict) || read_end_.piece >= asked.pieces.size())) {
        return reject_answer();
    }
    if (read_end_.verdict == Verdict::Done) {
        moved_bytes_ += asked.size_bytes;
    } else {
        may_have_touched_more_ = true;  // what came is no good, and is in place
        refuse(read_end_.verdict, read_end_.piece);
    }
    answered();
}

void Lane::answered() {
    if (asked_.front().part.is_check) --unanswered_checks_;
    if (const auto fenced = asked_.front().fenced; !fenced.empty()) {
        GivenUp::process().settle(connection_->target().connect.target, fenced);
    }
    asked_.pop_front();
    expecting_ = Expecting::Nothing;
}

// The target does not want it: nothing more is asked for, what was asked for already is answered.
void Lane::refuse(Verdict verdict, std::uint32_t piece) {
    stopping_ = true;
    may_have_touched_more_ |= write() && verdict == Verdict::NotMapped;  // what lies before the hole
    if (status_ != Status::Ok) return;
    status_ = Status::InvalidParam;
    const std::vector<Piece>& pieces = asked_.front().part.pieces;
    const Piece& bad = pieces[piece];
    refused_ = {remote_of(direction_, bad), bad.size_bytes};
    reason_ = std::to_string(bad.size_bytes) + " bytes at " + hexadecimal_address(remote_of(direction_, bad)) +
              (verdict == Verdict::NotExposed
                   ? " are not all inside memory that is registered there now"
                   : " are in memory that is registered there and not mapped any more; unregister before freeing");
}

// The error of a system call; 0 is the peer's end.
void Lane::lose(int error) {
    if (giving_up_ && error == 0) return end(Status::NotStarted, "it was ended early");
    if (error == EFAULT) {
        connection_->fail("was given up");
        return end(Status::InvalidParam, "a buffer of this process is not mapped, or not for this direction");
    }
    connection_->fail(error == 0 ? ECONNRESET : error);
    end(Status::NotConnected, connection_->failure());
}

void Lane::end(Status status, const std::string& reason) {
    broken_ = true;
    if (status_ == Status::Ok) {
        status_ = status;
        reason_ = reason;
    }
    may_have_touched_more_ |= write() ? !asked_.empty() && asked_.back().moves() : expecting_ == Expecting::Payload;
}

void Lane::cancel() {
    stopping_ = true;
    if (status_ == Status::Ok) {
        status_ = Status::NotStarted;
        reason_ = "it was ended early";
    }
    if (done()) return;
    if (!write() || connection_->state() != Connection::State::Ready) {
        end(status_, reason_);  // what arrives from now on goes nowhere
    } else if (out_.left_bytes() != 0) {
        giving_up_ = true;
        connection_->end_sending();
    }
}

std::unique_ptr<Connection> Lane::take_connection() {
    if (!broken_ && !giving_up_ && asked_.empty()) return std::move(connection_);
    const bool bytes_may_come = write() && std::ranges::any_of(asked_, &Asked::moves);
    if (bytes_may_come) GivenUp::process().add(connection_->target().connect.target, connection_->number());
    return nullptr;
}

}  // namespace memfabric::tcp
