// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_group.h"

#include <numeric>
#include <thread>
#include <utility>

#include "base/interruption.h"
#include "base/last_error.h"

namespace memfabric {
namespace {

using Clock = Collective::Clock;

Clock::time_point after(std::chrono::nanoseconds timeout) { return Clock::now() + timeout; }

}  // namespace

Status HostGroup::join(std::shared_ptr<ControlPage> page, const Config& config, std::unique_ptr<HostGroup>& joined) {
    std::unique_ptr<HostLiveness> liveness;
    if (const Status status = HostLiveness::start(page, config.rank, config.members, liveness); status != Status::Ok) {
        return status;
    }
    std::unique_ptr<HostGroup> group(new HostGroup(std::move(page), config, std::move(liveness)));
    if (const Status status = group->everybody_->claim(); status != Status::Ok) return status;
    joined = std::move(group);
    return Status::Ok;
}

HostGroup::HostGroup(std::shared_ptr<ControlPage> page, const Config& config, std::unique_ptr<HostLiveness> liveness)
    : config_(config),
      page_(std::move(page)),
      liveness_(std::move(liveness)),
      everybody_(std::make_unique<Collective>(Collective::Config{page_, liveness_.get(), &page_->group(0),
                                                                 config.rank_size, config.members, config.rank,
                                                                 config.rank, false, config.object_name})) {}

Status HostGroup::check_usable() const {
    if (fork_guard_.in_forked_child()) {
        return fail(Status::NotInit,
                    "%s: this process was forked from the member that joined; call initialize() and create() here",
                    config_.object_name.c_str());
    }
    if (left_.load(std::memory_order_acquire)) {
        return fail(Status::InvalidParam, "%s is destroyed: the handle is closed", config_.object_name.c_str());
    }
    return Status::Ok;
}

Status HostGroup::barrier(std::chrono::nanoseconds timeout, InterHostExchange* inter_host) {
    if (const Status status = check_usable(); status != Status::Ok) return status;
    return everybody_->barrier(after(timeout), inter_host);
}

Status HostGroup::all_gather(const std::byte* data, std::uint32_t bytes, std::byte* result,
                             std::chrono::nanoseconds timeout, InterHostExchange* inter_host) {
    if (const Status status = check_usable(); status != Status::Ok) return status;
    return everybody_->all_gather(data, bytes, result, after(timeout), inter_host);
}

Status HostGroup::subgroup(const std::string& name, std::uint32_t size, std::uint32_t rank,
                           std::chrono::nanoseconds timeout, Collective*& found) {
    if (const Status status = check_usable(); status != Status::Ok) return status;
    const std::lock_guard lock(subgroups_mutex_);
    auto& known = subgroups_[name];
    if (known == nullptr) {
        GroupSlot* group = nullptr;
        bool busy = true;
        for (const auto until = after(timeout); busy && group == nullptr;) {
            group = page_->subgroup(name, size, busy);
            if (!busy) break;
            if (liveness_->departures() != 0) {
                return fail(Status::NotConnected, "%s: a rank went away while subgroup '%s' was made",
                            config_.object_name.c_str(), name.c_str());
            }
            if (Clock::now() >= until) {
                return fail(Status::Timeout, "%s: another rank began to make subgroup '%s' and has not gone on in time",
                            config_.object_name.c_str(), name.c_str());
            }
            std::this_thread::yield();
            if (Interruption::requested()) return Status::Interrupted;
        }
        if (group == nullptr) return Status::NoResources;
        if (group->size != size) {
            return fail(Status::InvalidParam, "%s: subgroup '%s' has %u ranks, this call says %u",
                        config_.object_name.c_str(), name.c_str(), group->size, size);
        }
        std::vector<std::uint32_t> slots(size);
        std::iota(slots.begin(), slots.end(), 0U);
        auto made = std::make_unique<Collective>(
            Collective::Config{page_, liveness_.get(), group, size, std::move(slots), rank, config_.rank, true,
                               "subgroup '" + name + "' of " + config_.object_name});
        if (const Status status = made->claim(); status != Status::Ok) return status;
        known = std::move(made);
    }
    if (known->size() != size || known->slot() != rank) {
        return fail(Status::InvalidParam, "%s: in subgroup '%s' this rank is rank_id %u of %u, this call says %u of %u",
                    config_.object_name.c_str(), name.c_str(), known->slot(), known->size(), rank, size);
    }
    found = known.get();
    return Status::Ok;
}

void HostGroup::declare_gone(std::uint32_t rank, const std::string& reason) {
    if (!fork_guard_.in_forked_child()) liveness_->declare_gone(rank, reason);
}

void HostGroup::leave() {
    if (fork_guard_.in_forked_child() || left_.exchange(true)) return;
    liveness_->leave();
    liveness_->declare_gone(config_.rank,
                            "rank " + std::to_string(config_.rank) + " has left: it destroyed the object");
}

}  // namespace memfabric
