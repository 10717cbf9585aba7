// SPDX-License-Identifier: Apache-2.0
//
// What a process has of UCX while anybody uses it: one context, the worker of its own moves, and the thread that serves
// its memory. A forked child has none of it, and cannot: UCX works in the process that began with it only.
#pragma once

#include <memory>
#include <mutex>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "ucx/context.h"
#include "ucx/initiator.h"
#include "ucx/progress_thread.h"

namespace memfabric::ucx {

// Thread contract: any thread.
class MF_API Runtime {
public:
    // The process's; made if there is none. ResourceInUse if it was made with other options.
    static Status acquire(const Options& options, std::shared_ptr<Runtime>& acquired);
    ~Runtime();
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    // Made when they are first needed; they live as long as this does.
    Status initiator(Initiator*& found);
    Status progress_thread(ProgressThread*& found);

    const Context& context() const { return context_; }
    bool in_forked_child() const { return fork_guard_.in_forked_child(); }

private:
    Runtime(const Library& library, const Options& options) : options_(options), context_(library) {}
    static void stop_at_exit();

    const ForkGuard fork_guard_;
    const Options options_;
    Context context_;
    std::mutex mutex_;  // for the following
    std::unique_ptr<Initiator> initiator_;
    std::unique_ptr<ProgressThread> progress_thread_;
};

inline constexpr char kForkedChild[] =
    "this process was forked from one that uses UCX, which works in that one only; start processes with spawn, or fork "
    "before UCX is used";

}  // namespace memfabric::ucx
