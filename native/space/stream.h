// SPDX-License-Identifier: Apache-2.0
//
// An ordered queue of work with one thread of its own. Work n starts when work n-1 has ended, failed or not.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"

namespace memfabric {

struct Failure {
    Status status = Status::Ok;
    std::string sentence;
};

// Thread contract: every method may be called from any thread except the stream's own (a task must not use the stream
// that runs it). The thread starts with the first task, sleeps when there is none, and is joined by `close`. In a
// forked child every method fails with NotInit: the thread stayed with the parent.
class MF_API Stream {
public:
    using Task = std::function<Status()>;  // fails by returning a status and leaving the thread's last error
    using Timeout = std::optional<std::chrono::nanoseconds>;

    static std::shared_ptr<Stream> make();
    static std::shared_ptr<Stream> find(std::uint64_t handle);  // nullptr: no open stream has this handle
    static Status close_all();

    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream();

    std::uint64_t handle() const { return handle_; }  // never 0, never used again

    Status submit(Task task, std::uint64_t& sequence);  // the first task has sequence 1
    std::uint64_t submitted() const;
    std::uint64_t completed() const;

    // Calls the tasks up to `sequence` off: those that have not begun never do, the one that runs ends at its next
    // chunk. Does not wait; they count as completed, and as failed, when no byte of theirs moves any more.
    void cancel(std::uint64_t sequence);
    // For a task: the outcome of its work, or that it was called off before (NotStarted) or meanwhile (PartialFailed).
    static Status run_cancellable(const Task& work);

    // Until the tasks up to `sequence` have ended. Timeout if they have not by then, Interrupted.
    Status wait_for(std::uint64_t sequence, Timeout timeout = std::nullopt) const;

    // Until everything submitted so far has ended; returns and forgets the first failure since the last `wait`.
    Status wait(Timeout timeout = std::nullopt);
    Failure first_failure() const;  // does not forget

    // A new eventfd that becomes readable when the tasks up to `sequence` have ended. The caller closes it.
    Status notify_fd(std::uint64_t sequence, int& fd) const;
    // Runs `listener` when the copies up to `sequence` have ended, or never will; at once if that is so already. With
    // the stream's lock held: it must not block, nor call the stream.
    Status listen(std::uint64_t sequence, std::function<void()> listener) const;

    // Takes no new work, finishes what was submitted, joins the thread. Idempotent. Interrupted: it will end later.
    Status close();

    static constexpr std::uint64_t kMaxPending = std::uint64_t{1} << 20;

private:
    struct Queue;  // what the thread shares with callers

    explicit Stream(std::uint64_t handle);
    Status check_process() const;

    const std::uint64_t handle_;
    const ForkGuard fork_guard_;
    std::unique_ptr<Queue> queue_;
};

// Integer handles of streams: what callers of the copy functions pass. Knows the streams, does not keep them alive.
class StreamRegistry {
public:
    static StreamRegistry& process();

    std::uint64_t next_handle();
    void add(std::uint64_t handle, std::weak_ptr<Stream> stream);
    void remove(std::uint64_t handle);
    std::shared_ptr<Stream> find(std::uint64_t handle) const;
    std::vector<std::shared_ptr<Stream>> all() const;

private:
    friend void hold_across_forks<StreamRegistry>();
    StreamRegistry() { hold_across_forks<StreamRegistry>(); }
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }
    void begin_in_child() { mutex_.unlock(); }  // each stream knows itself whose it is

    mutable std::mutex mutex_;
    std::uint64_t last_handle_ = 0;
    std::unordered_map<std::uint64_t, std::weak_ptr<Stream>> streams_;
};

}  // namespace memfabric
