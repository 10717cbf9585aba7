// SPDX-License-Identifier: Apache-2.0
//
// A small world for the tests of spaces: four ranks' slots at addresses that are free in this process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memory/segment.h"
#include "space/space.h"
#include "tests/assertions.h"
#include "tests/copy/fenced_memory.h"

namespace memfabric::tests {

inline constexpr std::uint32_t kL2G = 0, kG2L = 1, kG2H = 2, kH2G = 3, kL2GH = 4, kGH2L = 5, kGH2H = 6, kH2GH = 7,
                               kG2G = 8, kAuto = 9;

// A range that nothing uses, found by asking the kernel: sanitizers leave only some addresses to programs.
inline std::uintptr_t free_range(std::size_t size_bytes) {
    constexpr std::size_t kAlignment = 2 * kMiB;
    void* got = mmap(nullptr, size_bytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return 0;
    munmap(got, size_bytes + kAlignment);
    return (reinterpret_cast<std::uintptr_t>(got) + kAlignment - 1) / kAlignment * kAlignment;
}

class File {
public:
    explicit File(std::uint64_t size_bytes) {
        Segment segment;
        if (create_segment({size_bytes, false}, segment) == Status::Ok) fd_ = segment.fd;
    }
    ~File() {
        if (fd_ >= 0) ::close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int fd() const { return fd_; }

private:
    int fd_ = -1;
};

// Rank 0 is this one. Slots: 4 MiB of DRAM, 2 MiB of HBM. Ranks 0 to 2 are live with 2 MiB of each; rank 3 never came.
struct World {
    static constexpr std::uint64_t kMaxDram = 4 * kMiB;
    static constexpr std::uint64_t kMaxHbm = 2 * kMiB;
    static constexpr std::uint64_t kHeld = 2 * kMiB;
    static constexpr std::uint32_t kRanks = 4;

    std::shared_ptr<Space> space;
    std::vector<std::byte> plain = std::vector<std::byte>(64 * 1024, std::byte{0x5a});

    explicit World(const std::string& name = "bm object 7") {
        Status status = Status::MallocFailed;
        for (int attempt = 0; attempt < 20 && status == Status::MallocFailed; ++attempt) {
            // What was free may be another thread's stack a moment later.
            const std::uintptr_t base = free_range(kRanks * (kMaxDram + kMaxHbm));
            status = Space::make({base, kRanks, kMaxDram, kMaxHbm, 0, name}, space);
        }
        require_ok(status);
        for (const std::uint32_t rank : {0U, 1U, 2U}) attach(rank);
        require_ok(space->open());
    }
    ~World() {
        if (space != nullptr) space->close();
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    void attach(std::uint32_t rank) {
        for (const Tier tier : {Tier::Dram, Tier::Hbm}) {
            const File file(kHeld);
            require_ok(space->attach(rank, tier, file.fd(), 0, 0, kHeld));
        }
        require_ok(space->activate(rank));
    }

    std::uintptr_t dram(std::uint32_t rank) const { return space->layout().slot_address(rank, Tier::Dram); }
    std::uintptr_t hbm(std::uint32_t rank) const { return space->layout().slot_address(rank, Tier::Hbm); }
    std::uintptr_t local() const { return reinterpret_cast<std::uintptr_t>(plain.data()); }
};

inline std::byte& byte_at(std::uintptr_t address) { return *reinterpret_cast<std::byte*>(address); }

}  // namespace memfabric::tests
