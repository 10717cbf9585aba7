// SPDX-License-Identifier: Apache-2.0
#include "transfer/access_epochs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <span>
#include <string>

#include "base/interruption.h"
#include "base/last_error.h"
#include "sync/backoff.h"

namespace memfabric {

constinit thread_local EpochWords::ThreadSlot* AccessEpochs::slot_of_thread_ = nullptr;
constinit thread_local std::uint32_t AccessEpochs::fork_of_slot_ = 0;

// Never destroyed: threads give their slots back while static destructors run.
AccessEpochs& AccessEpochs::process() {
    static AccessEpochs& epochs = *new AccessEpochs;
    return epochs;
}

// The page is shared with the parent: the child makes its own.
void AccessEpochs::begin_in_child() {
    file_.reset();
    mapping_.reset();
    taken_.fill(false);
    mutex_.unlock();
}

struct AccessEpochs::SlotKeeper {
    ~SlotKeeper() {
        const std::lock_guard lock(process().mutex_);
        if (slot_of_thread_ != nullptr && fork_of_slot_ == ForkGuard::forks()) {
            const auto* words = reinterpret_cast<const EpochWords*>(process().mapping_.address());
            process().taken_[static_cast<std::size_t>(slot_of_thread_ - words->slots.data())] = false;
        }
        slot_of_thread_ = nullptr;
    }
};

Status AccessEpochs::open() {
    if (mapping_) return Status::Ok;
    OwnedFd file;
    if (const Status status = make_memory_file("memfabric-epochs", sizeof(EpochWords), file); status != Status::Ok) {
        return status;
    }
    if (const Status status = SharedMapping::map(file.get(), sizeof(EpochWords), /*writable=*/true, mapping_);
        status != Status::Ok) {
        return status;
    }
    // Targets only read it; a write of theirs would let an initiator's memory be freed under its feet, not theirs.
    return forbid_writing(file, file_);
}

Status AccessEpochs::fd(int& shown) {
    const std::lock_guard lock(mutex_);
    if (const Status status = open(); status != Status::Ok) return status;
    shown = file_.get();
    return Status::Ok;
}

EpochWords::ThreadSlot* AccessEpochs::claim_slot() {
    const std::lock_guard lock(mutex_);
    if (open() != Status::Ok) return nullptr;
    for (std::size_t i = 0; i < taken_.size(); ++i) {
        if (taken_[i]) continue;
        taken_[i] = true;
        auto* words = reinterpret_cast<EpochWords*>(mapping_.address());
        if (words->used.load() <= i) words->used.store(i + 1, std::memory_order_seq_cst);
        slot_of_thread_ = &words->slots[i];
        fork_of_slot_ = ForkGuard::forks();
        thread_local SlotKeeper keeper;
        static_cast<void>(keeper);
        return slot_of_thread_;
    }
    static_cast<void>(fail(Status::NoResources, "more than %zu threads of this process transfer at the same time",
                           EpochWords::kSlots));
    return nullptr;
}

Status InitiatorEpochs::map(int fd, InitiatorEpochs& made) {
    if (const Status status = check_memory_file(fd, sizeof(EpochWords)); status != Status::Ok) return status;
    struct stat file{};
    if (fstat(fd, &file) == 0) made.file_number_ = file.st_ino;
    return SharedMapping::map(fd, sizeof(EpochWords), /*writable=*/false, made.mapping_);
}

bool InitiatorEpochs::is_mapped_by(pid_t pid) const {
    std::ifstream maps(std::string("/proc/").append(std::to_string(pid)).append("/maps"));
    if (!maps) return errno != ENOENT && errno != ESRCH;
    const std::string file = std::string(" ").append(std::to_string(file_number_)).append(" ");
    for (std::string line; std::getline(maps, line);) {  // none for one that has ended, but whose parent has not looked
        if (line.find("memfabric-epochs") != std::string::npos && line.find(file) != std::string::npos) return true;
    }
    return maps.bad();
}

bool InitiatorEpochs::wait_until_moved_on(std::uint64_t target, std::chrono::steady_clock::time_point deadline,
                                          const std::function<bool()>& is_gone) const {
    const std::uint64_t used = words().used.load(std::memory_order_seq_cst);
    for (const EpochWords::ThreadSlot& slot :
         std::span(words().slots).first(std::min<std::uint64_t>(used, EpochWords::kSlots))) {
        const std::uint64_t seen = slot.epoch.load(std::memory_order_seq_cst);
        // The target is stored before the epoch: an odd epoch stands beside its own target, or beside a later one.
        if (seen % 2 == 0 || slot.target.load(std::memory_order_seq_cst) != target) continue;
        Backoff backoff;
        auto next_look = std::chrono::steady_clock::now() + Interruption::kLongestSleep;
        while (slot.epoch.load(std::memory_order_seq_cst) == seen) {
            if (is_gone()) return true;
            const auto now = std::chrono::steady_clock::now();
            if (now >= deadline) return false;
            if (now >= next_look) {
                if (Interruption::requested()) return false;
                next_look = now + Interruption::kLongestSleep;
            }
            backoff.wait();
        }
    }
    return true;
}

}  // namespace memfabric
