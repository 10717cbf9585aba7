// SPDX-License-Identifier: Apache-2.0
#include "transfer/visits.h"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <span>
#include <string>

#include "core/backoff.h"
#include "core/interruption.h"
#include "core/last_error.h"

namespace memfabric {

// Never destroyed: threads give their seats back while static destructors run.
Visits& Visits::process() {
    static Visits& visits = *new Visits;
    static const int fork_handlers = pthread_atfork([] { visits.mutex_.lock(); }, [] { visits.mutex_.unlock(); },
                                                    [] {
                                                        // The page is shared with the parent: the child makes its own.
                                                        visits.file_.reset();
                                                        visits.mapping_.reset();
                                                        visits.taken_.fill(false);
                                                        fork_count_.fetch_add(1, std::memory_order_relaxed);
                                                        visits.mutex_.unlock();
                                                    });
    static_cast<void>(fork_handlers);
    return visits;
}

struct Visits::SeatKeeper {
    ~SeatKeeper() {
        const std::lock_guard lock(process().mutex_);
        if (seat_of_thread_ != nullptr && fork_of_seat_ == fork_count_.load()) {
            const auto* words = reinterpret_cast<const VisitWords*>(process().mapping_.address());
            process().taken_[static_cast<std::size_t>(seat_of_thread_ - words->seats.data())] = false;
        }
        seat_of_thread_ = nullptr;
    }
};

Status Visits::open() {
    if (mapping_) return Status::Ok;
    OwnedFd file;
    if (const Status status = make_memory_file("memfabric-visits", sizeof(VisitWords), file); status != Status::Ok) {
        return status;
    }
    if (const Status status = SharedMapping::map(file.get(), sizeof(VisitWords), /*writable=*/true, mapping_);
        status != Status::Ok) {
        return status;
    }
    // Engines only read it; a write of theirs would let a visitor's memory be freed under its feet, not the engine's.
    return forbid_writing(file, file_);
}

Status Visits::fd(int& shown) {
    const std::lock_guard lock(mutex_);
    if (const Status status = open(); status != Status::Ok) return status;
    shown = file_.get();
    return Status::Ok;
}

VisitWords::Seat* Visits::take_seat() {
    const std::lock_guard lock(mutex_);
    if (open() != Status::Ok) return nullptr;
    for (std::size_t i = 0; i < taken_.size(); ++i) {
        if (taken_[i]) continue;
        taken_[i] = true;
        auto* words = reinterpret_cast<VisitWords*>(mapping_.address());
        if (words->used.load() <= i) words->used.store(i + 1, std::memory_order_seq_cst);
        seat_of_thread_ = &words->seats[i];
        fork_of_seat_ = fork_count_.load();
        thread_local SeatKeeper keeper;
        static_cast<void>(keeper);
        return seat_of_thread_;
    }
    static_cast<void>(fail(Status::NoResources, "more than %zu threads of this process transfer at the same time",
                           VisitWords::kSeats));
    return nullptr;
}

Status VisitorPage::map(int fd, VisitorPage& made) {
    if (const Status status = check_memory_file(fd, sizeof(VisitWords)); status != Status::Ok) return status;
    struct stat file{};
    if (fstat(fd, &file) == 0) made.file_number_ = file.st_ino;
    return SharedMapping::map(fd, sizeof(VisitWords), /*writable=*/false, made.mapping_);
}

bool VisitorPage::is_mapped_by(pid_t pid) const {
    std::ifstream maps(std::string("/proc/").append(std::to_string(pid)).append("/maps"));
    if (!maps) return errno != ENOENT && errno != ESRCH;
    const std::string file = std::string(" ").append(std::to_string(file_number_)).append(" ");
    for (std::string line; std::getline(maps, line);) {  // none for one that has ended, but whose parent has not looked
        if (line.find("memfabric-visits") != std::string::npos && line.find(file) != std::string::npos) return true;
    }
    return maps.bad();
}

bool VisitorPage::wait_until_moved_on(std::uint64_t host, std::chrono::steady_clock::time_point deadline,
                                      const std::function<bool()>& is_gone) const {
    const std::uint64_t used = words().used.load(std::memory_order_seq_cst);
    for (const VisitWords::Seat& seat :
         std::span(words().seats).first(std::min<std::uint64_t>(used, VisitWords::kSeats))) {
        const std::uint64_t seen = seat.count.load(std::memory_order_seq_cst);
        // The host is stored before the count: an odd count stands beside its own host, or beside a later one.
        if (seen % 2 == 0 || seat.host.load(std::memory_order_seq_cst) != host) continue;
        Backoff backoff;
        auto next_look = std::chrono::steady_clock::now() + Interruption::kLongestSleep;
        while (seat.count.load(std::memory_order_seq_cst) == seen) {
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
