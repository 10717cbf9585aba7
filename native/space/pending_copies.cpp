// SPDX-License-Identifier: Apache-2.0
#include "space/pending_copies.h"

#include <algorithm>
#include <utility>

#include "base/last_error.h"

namespace memfabric {

// The task must not outlive this object: whoever owns it is kept alive by `copy`.
Status PendingCopies::submit(const std::shared_ptr<Stream>& stream, Stream::Task copy) {
    const auto task = [this, copy = std::move(copy)] {
        const Status status = copy();
        if (status != Status::Ok) {
            const std::lock_guard lock(mutex_);
            if (first_failure_.status == Status::Ok) first_failure_ = {status, last_error()};
        }
        return status;
    };
    std::uint64_t sequence = 0;
    if (const Status status = stream->submit(task, sequence); status != Status::Ok) return status;

    const std::lock_guard lock(mutex_);
    std::erase_if(marks_, [](const Mark& mark) { return mark.stream.expired(); });
    for (Mark& mark : marks_) {
        if (mark.stream.lock() == stream) {
            mark.sequence = std::max(mark.sequence, sequence);
            return Status::Ok;
        }
    }
    marks_.push_back({stream, sequence});
    return Status::Ok;
}

Status PendingCopies::wait() {
    std::vector<Mark> marks;
    {
        const std::lock_guard lock(mutex_);
        marks = marks_;
    }
    for (const Mark& mark : marks) {
        const auto stream = mark.stream.lock();
        if (stream == nullptr) continue;
        if (const Status status = stream->wait_for(mark.sequence); status != Status::Ok) return status;
    }
    const std::lock_guard lock(mutex_);
    const Failure failure = std::exchange(first_failure_, {});
    if (failure.status != Status::Ok) set_last_error(failure.sentence);
    return failure.status;
}

}  // namespace memfabric
