// SPDX-License-Identifier: Apache-2.0
#include "transports/peer_process.h"

#include <linux/futex.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "copy/engine.h"
#include "copy/job.h"
#include "memory/readable_memory.h"

namespace memfabric {

static_assert(PeerProcess::kHolderMask == FUTEX_TID_MASK);  // what a LivenessLease writes

namespace {

// One system call moves this much in about 40 us: enough that claiming chunks costs nothing, small enough to balance.
constexpr std::size_t kSmallestChunkBytes = 256 * 1024;
// The kernel locks the other process's page tables, one lock per 2 MiB, and counts its users of huge pages, one counter
// per 2 MiB. Threads that work closer together than that wait for each other: 64 MiB in chunks of 256 KiB took 1.25 x
// as long with two threads (on 4 KiB pages).
constexpr std::size_t kLargestChunkBytes = 2 * 1024 * 1024;
constexpr std::size_t kChunksWanted = 32;  // to balance
constexpr std::size_t kVectors = IOV_MAX;

struct Moved {
    std::size_t size_bytes = 0;
    int error = 0;
};

struct Vectors {
    std::array<iovec, kVectors> local;
    std::array<iovec, kVectors> remote;
    std::size_t count = 0;
    std::size_t size_bytes = 0;

    void add(Direction direction, const Piece& piece, std::size_t offset, std::size_t piece_bytes) {
        void* target = piece.target + offset;
        void* source = const_cast<std::byte*>(piece.source + offset);
        const bool write = direction == Direction::Write;
        local[count] = {write ? source : target, piece_bytes};
        remote[count] = {write ? target : source, piece_bytes};
        ++count;
        size_bytes += piece_bytes;
    }
};

ssize_t call(const PeerProcess& peer, Direction direction, const iovec* local, std::size_t local_count,
             const iovec* remote, std::size_t remote_count) {
    if (!peer.alive()) [[unlikely]] {
        errno = ESRCH;
        return -1;
    }
    return direction == Direction::Write ? process_vm_writev(peer.pid, local, local_count, remote, remote_count, 0)
                                         : process_vm_readv(peer.pid, local, local_count, remote, remote_count, 0);
}

// Drops the first `size_bytes` of the vectors from `first` on; returns the first vector that has bytes left.
std::size_t advance(std::array<iovec, kVectors>& vectors, std::size_t first, std::size_t size_bytes) {
    while (size_bytes >= vectors[first].iov_len && size_bytes > 0) size_bytes -= vectors[first++].iov_len;
    if (size_bytes > 0) {
        vectors[first].iov_base = static_cast<std::byte*>(vectors[first].iov_base) + size_bytes;
        vectors[first].iov_len -= size_bytes;
    }
    return first;
}

// The kernel may stop half-way: at 2 GiB, or at a page it cannot reach, which the next call then reports.
Moved flush(const PeerProcess& peer, Direction direction, Vectors& vectors) {
    Moved moved;
    std::size_t first = 0;
    while (moved.size_bytes < vectors.size_bytes) {
        const ssize_t got = call(peer, direction, &vectors.local[first], vectors.count - first, &vectors.remote[first],
                                 vectors.count - first);
        if (got <= 0) {
            moved.error = got < 0 ? errno : EFAULT;
            break;
        }
        moved.size_bytes += static_cast<std::size_t>(got);
        if (moved.size_bytes == vectors.size_bytes) break;
        advance(vectors.local, first, static_cast<std::size_t>(got));
        first = advance(vectors.remote, first, static_cast<std::size_t>(got));
    }
    vectors.count = 0;
    vectors.size_bytes = 0;
    return moved;
}

Moved move_between(const PeerProcess& peer, Direction direction, std::span<const Piece> pieces, ChunkMarks::Mark from,
                   ChunkMarks::Mark to) {
    Vectors vectors;
    Moved moved;
    const auto flush_all = [&] {
        const Moved part = flush(peer, direction, vectors);
        moved.size_bytes += part.size_bytes;
        moved.error = part.error;
        return part.error == 0;
    };
    std::size_t offset = from.offset;
    for (std::size_t i = from.piece; i < to.piece; ++i) {
        vectors.add(direction, pieces[i], offset, pieces[i].size_bytes - offset);
        offset = 0;
        if (vectors.count == kVectors && !flush_all()) return moved;
    }
    if (to.offset != 0) vectors.add(direction, pieces[to.piece], offset, to.offset - offset);
    flush_all();
    return moved;
}

// Errors are errno of the first system call that failed; ESRCH also for a process that died meanwhile.
class PeerJob final : public ChunkedJob {
public:
    PeerJob(const PeerProcess& peer, Direction direction, std::span<const Piece> pieces, std::size_t total_bytes)
        : peer_(peer), direction_(direction), pieces_(pieces) {
        const std::size_t chunk_bytes =
            std::clamp(total_bytes / kChunksWanted, kSmallestChunkBytes, kLargestChunkBytes);
        marks_.cut(pieces, total_bytes, chunk_bytes, [](const Piece&) { return false; });
    }

    std::uint32_t chunk_count() const noexcept override { return marks_.chunk_count(); }
    void run_chunk(std::uint32_t chunk) const noexcept override {
        if (error_.load(std::memory_order_relaxed) != 0) return;
        const Moved part = move_between(peer_, direction_, pieces_, marks_[chunk], marks_[chunk + 1]);
        moved_bytes_.fetch_add(part.size_bytes, std::memory_order_relaxed);
        int none = 0;
        if (part.error != 0) error_.compare_exchange_strong(none, part.error, std::memory_order_relaxed);
    }
    Moved moved() const {
        return {moved_bytes_.load(std::memory_order_relaxed), error_.load(std::memory_order_relaxed)};
    }

private:
    const PeerProcess& peer_;
    Direction direction_;
    std::span<const Piece> pieces_;
    ChunkMarks marks_;
    mutable std::atomic<std::size_t> moved_bytes_{0};
    mutable std::atomic<int> error_{0};
};

Moved move_one(const PeerProcess& peer, Direction direction, const Piece& piece) {
    const bool write = direction == Direction::Write;
    void* source = const_cast<std::byte*>(piece.source);
    const iovec local{write ? source : piece.target, piece.size_bytes};
    const iovec remote{write ? piece.target : source, piece.size_bytes};
    const ssize_t got = call(peer, direction, &local, 1, &remote, 1);
    if (got == static_cast<ssize_t>(piece.size_bytes)) [[likely]]
        return {piece.size_bytes, 0};
    // Nothing, or a part: said by errno, or a page in the middle that one side cannot reach.
    return {got < 0 ? 0 : static_cast<std::size_t>(got), got < 0 ? errno : EFAULT};
}

Moved move_pieces(const PeerProcess& peer, const Move& move) {
    if (move.total_bytes <= kSmallestChunkBytes) {
        if (move.pieces.size() == 1) return move_one(peer, move.direction, move.pieces[0]);
        return move_between(peer, move.direction, move.pieces, {0, 0}, {move.pieces.size(), 0});
    }
    const PeerJob job(peer, move.direction, move.pieces, move.total_bytes);
    CopyEngine::process().share(job, move.total_bytes);
    return job.moved();
}

// What is wrong with our own side of the pieces, which then was the reason for EFAULT; "" if nothing is. Touches none
// of it.
std::string fault_of_own_side(const Move& move) {
    const bool is_write = move.direction == Direction::Write;
    ReadableMemory usable(is_write ? ReadableMemory::Access::Read : ReadableMemory::Access::ReadAndWrite);
    ReadableMemory mapped;
    for (const Piece& piece : move.pieces) {
        const std::uint64_t own = local_of(move.direction, piece);
        bool answer = true;
        if (usable.covers(own, piece.size_bytes, answer) != Status::Ok || answer) continue;
        std::array<char, 160> sentence;
        const bool is_there = !is_write && mapped.covers(own, piece.size_bytes, answer) == Status::Ok && answer;
        std::snprintf(sentence.data(), sentence.size(), "the buffer of this process, %zu bytes at 0x%" PRIx64 ", is %s",
                      piece.size_bytes, own,
                      is_there ? "read-only; read into memory that can be written" : "not all mapped");
        return sentence.data();
    }
    return {};
}

}  // namespace

// It asks for the right before it looks at the address, where nothing is.
bool kernel_allows(pid_t pid) {
    char byte = 0;
    const iovec local{&byte, 1};
    const iovec remote{reinterpret_cast<void*>(1), 1};
    return process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT;
}

const Transport::Traits& PeerProcessTransport::traits() const noexcept {
    static constexpr Traits kTraits{.route = Route::PeerProcess,
                                    .synchronous = true,
                                    .peer_is_idle = true,
                                    .addresses_are_ours = false,
                                    .part_bytes = std::size_t{128} << 20};
    return kTraits;
}

Outcome PeerProcessTransport::run(const Move& move) const noexcept {
    const Moved moved = move_pieces(process_, move);
    if (moved.error != 0) [[unlikely]]
        return explain(move, moved.size_bytes, moved.error);
    return {Status::Ok, moved.size_bytes, {}};
}

Outcome PeerProcessTransport::explain(const Move& move, std::size_t moved_bytes, int error) const {
    const std::string pid = std::to_string(process_.pid);
    switch (error) {
        case ESRCH:
            return {Status::NotConnected, moved_bytes, "its process (" + pid + ") has ended"};
        case EFAULT: {
            std::string ours = fault_of_own_side(move);
            return {Status::InvalidParam, moved_bytes,
                    ours.empty() ? "memory that is registered there is not mapped any more, or not for this direction; "
                                   "unregister before freeing"
                                 : std::move(ours)};
        }
        case EPERM:
            return {Status::NotConnected, moved_bytes,
                    "the kernel does not let this process into process " + pid + "; " + kHowToAllow};
        default:
            return {Status::Error, moved_bytes,
                    "the kernel refuses to move bytes between this process and process " + pid + ": " +
                        std::strerror(error)};
    }
}

}  // namespace memfabric
