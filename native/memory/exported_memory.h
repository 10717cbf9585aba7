// SPDX-License-Identifier: Apache-2.0
//
// The memory of this process that others can map: whoever makes such memory (a pool, a symmetric heap, trans_malloc)
// enters its addresses and its memory file here; whoever shows memory to other processes looks here first.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.h"
#include "base/owned_fd.h"

namespace memfabric {

// Addresses [start, end) are bytes [file_offset, file_offset + end - start) of the file.
struct ExportedRange {
    std::uint32_t id = 0;  // never used twice in one process; 0 is none
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t file_offset = 0;
    std::shared_ptr<const OwnedFd> file;
};

class ExportWatcher {
public:
    // The memory is about to be unmapped: returns when nobody uses it on the watcher's account any more.
    virtual void export_ends(const ExportedRange& range) = 0;

protected:
    ~ExportWatcher() = default;
};

// Thread contract: any thread. `remove` waits for the watchers, so no lock that they need may be held.
class ExportedMemory {
public:
    static ExportedMemory& process();

    // 0, and nothing entered, if the file could shrink (a mapping of it could be pulled away) or no descriptor is left:
    // the memory is then reached as any other. Duplicates the descriptor.
    std::uint32_t add(std::uint64_t start, std::uint64_t size_bytes, int fd, std::uint64_t file_offset);
    void remove(std::uint32_t id);

    std::vector<ExportedRange> all() const;  // disjoint, in order of their addresses

    void watch(ExportWatcher* watcher);
    void unwatch(ExportWatcher* watcher);  // returns when it is not being called and will not be

private:
    friend void hold_across_forks<ExportedMemory>();
    ExportedMemory() { hold_across_forks<ExportedMemory>(); }
    void before_fork();
    void after_fork();
    void begin_in_child();

    mutable std::mutex watching_;  // held while watchers are called; taken before mutex_
    std::vector<ExportWatcher*> watchers_;
    mutable std::mutex mutex_;
    std::vector<ExportedRange> ranges_;
    std::uint32_t last_id_ = 0;
};

}  // namespace memfabric
