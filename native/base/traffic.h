// SPDX-License-Identifier: Apache-2.0
//
// How much went which way: calls and bytes by route, operation and size class. Every thread has its own counters and
// only adds to them; whoever wants to know sums up over all threads.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace memfabric {

enum class Route : std::uint8_t { Mapped, PeerProcess, Tcp, Ucx };
inline constexpr std::size_t kRoutes = 4;
inline constexpr const char* name_of(Route route) {
    constexpr std::array<const char*, kRoutes> kNames{"mapped", "peer_process", "tcp", "ucx"};
    return kNames[static_cast<std::size_t>(route)];
}

// Of an object; of a transfer; a notification, which takes the control connection beside that route.
enum class Operation : std::uint8_t { Copy, Read, Write, Notify };
inline constexpr std::size_t kOperations = 4;
inline constexpr const char* name_of(Operation operation) {
    constexpr std::array<const char*, kOperations> kNames{"copy", "read", "write", "notify"};
    return kNames[static_cast<std::size_t>(operation)];
}

// Below 4 KiB, 64 KiB, 1 MiB, 16 MiB and 256 MiB, and what is larger: of the whole call, not of its pieces.
inline constexpr std::size_t kSizeClasses = 6;
inline constexpr std::size_t size_class(std::uint64_t size_bytes) {
    const auto width = static_cast<std::size_t>(std::bit_width(size_bytes));
    return std::min((std::max<std::size_t>(width, 9) - 9) / 4, kSizeClasses - 1);
}
inline constexpr std::uint64_t smallest_of_class(std::size_t index) {
    return index == 0 ? 0 : std::uint64_t{1} << (4 * index + 8);
}

// Thread contract: one thread at a time adds, any thread reads. Cost of `add`: some 2 ns, no locked instruction.
class TrafficCounters {
public:
    struct Amount {
        std::uint64_t calls = 0;
        std::uint64_t bytes = 0;
    };

    void add(Route route, Operation operation, std::uint64_t size_bytes) {
        Cell& cell = at(route, operation, size_class(size_bytes));
        raise(cell.calls, 1);
        raise(cell.bytes, size_bytes);
    }
    Amount read(Route route, Operation operation, std::size_t size_class) const {
        const Cell& cell = const_cast<TrafficCounters*>(this)->at(route, operation, size_class);
        return {cell.calls.load(std::memory_order_relaxed), cell.bytes.load(std::memory_order_relaxed)};
    }
    void clear() {
        for (Cell& cell : cells_) {
            cell.calls.store(0, std::memory_order_relaxed);
            cell.bytes.store(0, std::memory_order_relaxed);
        }
    }

private:
    struct Cell {
        std::atomic<std::uint64_t> calls{0};
        std::atomic<std::uint64_t> bytes{0};
    };

    static void raise(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    Cell& at(Route route, Operation operation, std::size_t size_class) {
        return cells_[(static_cast<std::size_t>(route) * kOperations + static_cast<std::size_t>(operation)) *
                          kSizeClasses +
                      size_class];
    }

    std::array<Cell, kRoutes * kOperations * kSizeClasses> cells_;
};

}  // namespace memfabric
