// SPDX-License-Identifier: Apache-2.0
#include "ucx/runtime.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "base/last_error.h"

namespace memfabric::ucx {
namespace {

struct Table {
    std::mutex mutex;
    std::weak_ptr<Runtime> runtime;
};

Table& table() {
    static Table& the_table = *new Table;
    return the_table;
}

// Forks before UCX's first use are no matter.
bool is_forked_from_user() {
    static const ForkGuard first_use;
    return first_use.in_forked_child();
}

}  // namespace

Status Runtime::acquire(const Options& options, std::shared_ptr<Runtime>& acquired) {
    const Library* library = Library::loaded();
    if (library == nullptr) return fail(Status::NotInit, "UCX is not loaded");
    if (is_forked_from_user()) return fail(Status::NoResources, "%s", kForkedChild);
    const std::lock_guard lock(table().mutex);
    std::shared_ptr<Runtime> runtime = table().runtime.lock();
    if (runtime == nullptr) {
        runtime.reset(new Runtime(*library, options));
        if (const Status status = runtime->context_.open(options); status != Status::Ok) return status;
        static const int at_exit = std::atexit(&stop_at_exit);
        static_cast<void>(at_exit);
        table().runtime = runtime;
    } else if (runtime->options_ != options) {
        return fail(Status::ResourceInUse,
                    "UCX is in use over transports %s on devices %s, it cannot use %s on %s as well; a process has one "
                    "choice",
                    runtime->options_.transports.c_str(), runtime->options_.devices.c_str(), options.transports.c_str(),
                    options.devices.c_str());
    }
    acquired = std::move(runtime);
    return Status::Ok;
}

Runtime::~Runtime() {
    if (!in_forked_child()) return;
    context_.abandon();
    if (initiator_ != nullptr) initiator_.release()->abandon();
    if (progress_thread_ != nullptr) progress_thread_.release()->abandon();
}

// UCX ends with the process; no thread of ours may be inside then.
void Runtime::stop_at_exit() {
    if (is_forked_from_user()) return;
    std::shared_ptr<Runtime> runtime;
    {
        const std::lock_guard lock(table().mutex);
        runtime = table().runtime.lock();
    }
    if (runtime == nullptr) return;
    const std::lock_guard lock(runtime->mutex_);
    if (runtime->progress_thread_ != nullptr) runtime->progress_thread_->stop();
}

Status Runtime::initiator(Initiator*& found) {
    const std::lock_guard lock(mutex_);
    if (initiator_ == nullptr) {
        if (const Status status = Initiator::make(context_, initiator_); status != Status::Ok) return status;
    }
    found = initiator_.get();
    return Status::Ok;
}

Status Runtime::progress_thread(ProgressThread*& found) {
    const std::lock_guard lock(mutex_);
    if (progress_thread_ == nullptr) {
        if (const Status status = ProgressThread::start(progress_thread_); status != Status::Ok) return status;
    }
    found = progress_thread_.get();
    return Status::Ok;
}

}  // namespace memfabric::ucx
