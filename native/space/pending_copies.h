// SPDX-License-Identifier: Apache-2.0
//
// What one object has queued and not yet waited for: how far each stream must get, and the first failure.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "space/stream.h"

namespace memfabric {

// Thread contract: any thread. `wait` waits only for what was submitted before it was called.
class PendingCopies {
public:
    // `copy` runs on the stream's thread; its failure is kept for `wait`, and for the stream's own.
    Status submit(const std::shared_ptr<Stream>& stream, Stream::Task copy);
    Status wait();

private:
    struct Mark {
        std::weak_ptr<Stream> stream;  // one that is gone has ended all its work
        std::uint64_t sequence;
    };

    std::mutex mutex_;
    std::vector<Mark> marks_;
    Failure first_failure_;
};

}  // namespace memfabric
