// SPDX-License-Identifier: Apache-2.0
#include "transports/peer_process.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "tests/check.h"

namespace memfabric {
namespace {

// A child of this process that shares the layout of its memory and does nothing.
class Child {
public:
    explicit Child(std::size_t size_bytes) : size_bytes_(size_bytes), memory_(size_bytes) {
        std::memset(memory_.data(), 1, size_bytes);
        pid_ = fork();
        if (pid_ == 0) {
            for (;;) pause();
        }
    }
    ~Child() { end(); }
    void end() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    PeerProcess process() const { return {pid_, &life}; }
    std::byte* at(std::size_t offset) { return memory_.data() + offset; }
    std::size_t size_bytes() const { return size_bytes_; }

    std::atomic<std::uint32_t> life{1};

private:
    std::size_t size_bytes_;
    std::vector<std::byte> memory_;
    pid_t pid_ = -1;
};

// Emulators of one process do not have these system calls; what is left to test then is that they say so.
bool supported(Child& child) {
    std::byte byte{7};
    const Piece piece{child.at(0), &byte, 1};
    const Moved moved = move_pieces(child.process(), Direction::Write, {&piece, 1}, 1);
    if (moved.error == ENOSYS) return false;
    CHECK_EQ(moved.error, 0);
    return true;
}

std::vector<std::byte> pattern(std::size_t size_bytes, unsigned seed) {
    std::vector<std::byte> bytes(size_bytes);
    for (std::size_t i = 0; i < size_bytes; ++i)
        bytes[i] = static_cast<std::byte>((i * 31 + seed * 7 + i / 251) & 0xFF);
    return bytes;
}

TEST(peer_process_moves_pieces_of_every_size) {
    constexpr std::size_t kSize = std::size_t{9} << 20;
    Child child(kSize);
    if (!supported(child)) return;
    for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{300'001}, kSize}) {
        const std::vector<std::byte> source = pattern(size, 3);
        const Piece out{child.at(0), source.data(), size};
        const Moved written = move_pieces(child.process(), Direction::Write, {&out, 1}, size);
        CHECK_EQ(written.error, 0);
        CHECK_EQ(written.size_bytes, size);
        std::vector<std::byte> back(size);
        const Piece in{back.data(), child.at(0), size};
        CHECK_EQ(move_pieces(child.process(), Direction::Read, {&in, 1}, size).size_bytes, size);
        CHECK(back == source);
    }
}

TEST(peer_process_moves_many_pieces_in_many_calls) {
    constexpr std::size_t kCount = 5000;
    constexpr std::size_t kPiece = 777;
    Child child(kCount * kPiece);
    if (!supported(child)) return;
    const std::vector<std::byte> source = pattern(kCount * kPiece, 5);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < kCount; ++i) {
        pieces.push_back({child.at((kCount - 1 - i) * kPiece), source.data() + i * kPiece, kPiece});
    }
    CHECK_EQ(move_pieces(child.process(), Direction::Write, pieces, source.size()).size_bytes, source.size());
    std::vector<std::byte> back(source.size());
    std::vector<Piece> returning;
    for (std::size_t i = 0; i < kCount; ++i) {
        returning.push_back({back.data() + i * kPiece, child.at((kCount - 1 - i) * kPiece), kPiece});
    }
    CHECK_EQ(move_pieces(child.process(), Direction::Read, returning, back.size()).error, 0);
    CHECK(back == source);
}

TEST(peer_process_stops_when_the_life_word_is_wiped) {
    Child child(4096);
    if (!supported(child)) return;
    child.life.store(0x40000000);  // what the kernel leaves of a dead owner
    std::byte byte{9};
    const Piece piece{child.at(0), &byte, 1};
    const Moved moved = move_pieces(child.process(), Direction::Write, {&piece, 1}, 1);
    CHECK_EQ(moved.error, ESRCH);
    CHECK_EQ(moved.size_bytes, 0U);
}

TEST(peer_process_reports_what_is_not_mapped) {
    Child child(1 << 20);
    if (!supported(child)) return;
    std::vector<std::byte> own(1 << 20);
    const Piece bad_remote{reinterpret_cast<std::byte*>(4096), own.data(), 64};
    CHECK_EQ(move_pieces(child.process(), Direction::Write, {&bad_remote, 1}, 64).error, EFAULT);
    CHECK(own_side_is_accessible(Direction::Write, {&bad_remote, 1}));
    const Piece bad_own{child.at(0), reinterpret_cast<std::byte*>(4096), 64};
    CHECK_EQ(move_pieces(child.process(), Direction::Write, {&bad_own, 1}, 64).error, EFAULT);
    CHECK(!own_side_is_accessible(Direction::Write, {&bad_own, 1}));
    // A good piece before a bad one: a part was moved, and the answer says how much.
    const std::vector<Piece> mixed{{child.at(0), own.data(), 4096}, bad_remote};
    const Moved part = move_pieces(child.process(), Direction::Write, mixed, 4096 + 64);
    CHECK_EQ(part.error, EFAULT);
    CHECK_EQ(part.size_bytes, 4096U);
}

TEST(peer_process_that_is_gone) {
    Child child(4096);
    if (!supported(child)) return;
    const PeerProcess process = child.process();
    std::byte byte{9};
    const Piece piece{child.at(0), &byte, 1};
    child.end();
    CHECK_EQ(move_pieces(process, Direction::Write, {&piece, 1}, 1).error, ESRCH);
}

}  // namespace
}  // namespace memfabric
