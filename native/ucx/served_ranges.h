// SPDX-License-Identifier: Apache-2.0
//
// Ranges of this process's memory that come and go, as UCX serves them. Those that came together are reached through
// one worker; when one of them goes, so does the worker, and the others are served anew before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "copy/request.h"
#include "ucx/context.h"
#include "ucx/remote_memory.h"
#include "ucx/served_memory.h"

namespace memfabric::ucx {

// What an initiator has to know of one address.
struct ServedAt {
    enum class Verdict : std::uint8_t { Served, Failed, Unknown };

    Verdict verdict = Verdict::Unknown;
    std::string worker_address;
    RemoteRegion region;
    std::string obstacle;  // if it was to be served and could not be
};

// Thread contract: any thread, with no lock held that a fork needs. `find` waits for nobody.
class MF_API ServedRanges {
public:
    explicit ServedRanges(Options options) : options_(std::move(options)) {}

    // What cannot be served is remembered with its reason, which `find` gives; the failure is the caller's, too.
    Status add(std::span<const Extent> ranges);
    // When it returns, UCX touches none of them; moves of others that were under way may have failed.
    void remove(const std::function<bool(const Extent&)>& goes);

    ServedAt find(std::uint64_t address) const;

private:
    struct Group {
        std::vector<Extent> ranges;
        std::unique_ptr<ServedMemory> served;  // nothing: see `obstacle`
        std::string obstacle;
    };

    Status serve(Group& group) const;

    const Options options_;
    std::mutex changing_;       // one at a time; held while UCX begins and ends
    mutable std::mutex mutex_;  // for the following; held for moments
    std::vector<std::shared_ptr<const Group>> groups_;
};

}  // namespace memfabric::ucx
