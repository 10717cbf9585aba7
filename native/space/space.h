// SPDX-License-Identifier: Apache-2.0
//
// One object's address space: resolves addresses to ranks, checks and runs copies, and follows the control plane, which
// says whose memory is where and who is gone. A copy never touches memory that is being unmapped, and never reports
// success for memory whose owner was revoked meanwhile.
//
// Life of an object: make → attach, activate, … → open ⇄ shut → close. Copies work while it is open.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "copy/engine.h"
#include "copy/request.h"
#include "endpoint/frames.h"
#include "memory/layout.h"
#include "memory/slot_table.h"
#include "space/exposed_slot.h"
#include "space/object_state.h"
#include "space/pending_copies.h"
#include "space/resolver.h"
#include "space/ucx_slot.h"
#include "space/view.h"
#include "sync/rcu.h"
#include "tcp/served_memory.h"
#include "transports/routed_batch.h"
#include "ucx/context.h"
#include "ucx/remote_memory.h"

namespace memfabric {

// Thread contract: every method may be called from any thread. Copies block for their bytes only; `attach`, `drain` and
// `close` wait for running copies (one chunk of a large one), `wait` for queued ones; nothing else blocks. Every
// failure leaves a sentence in the thread's last error. Copies from and to other hosts wait for them, no longer than
// the stall limit without a byte.
class MF_API Space : public std::enable_shared_from_this<Space> {
public:
    struct Config {
        std::uintptr_t base;
        std::uint32_t capacity;  // ranks
        std::uint64_t max_dram_bytes;
        std::uint64_t max_hbm_bytes;
        std::uint32_t local_rank;
        std::string object_name;  // as sentences call it: "bm object 7"
        std::chrono::nanoseconds stall_limit = RoutedBatch::kNoLimit;
    };
    // Asks the control plane for news that have not arrived yet. Ok: look again; a failure, with a sentence: do not.
    using CatchUp = std::function<Status(const std::vector<std::uint32_t>& ranks)>;

    // Reserves the whole range in this process. In a forked child it takes it over from what was inherited there.
    static Status make(const Config& config, std::shared_ptr<Space>& made);
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

    // For the control plane; SlotTable says more.
    Status attach(std::uint32_t rank, Tier tier, int fd, std::uint64_t fd_offset, std::uint64_t slot_offset,
                  std::uint64_t size_bytes, bool sealed = false);
    Status attach_remote(std::uint32_t rank, Tier tier, std::uint64_t slot_offset, std::uint64_t size_bytes,
                         std::shared_ptr<Transport> transport);
    Status activate(std::uint32_t rank);
    Status revoke(std::uint32_t rank, const std::string& reason);
    Status detach(std::uint32_t rank);
    bool collect() { return slots_.collect(); }
    void drain(std::uint32_t rank) { slots_.drain(rank); }
    bool is_drained(std::uint32_t rank) { return slots_.is_drained(rank); }

    // Members of other hosts who say `connect` may touch this rank's memory between `expose` and `conceal` or `shut`.
    // The same answer every time.
    Status serve(Connect& connect);
    // The same by UCX, from now on until `conceal`. Again when memory was added: then it serves that, too.
    Status serve_ucx(const ucx::Options& options, ucx::RemoteMemory& for_initiators);
    void expose() { is_exposed_.store(true, std::memory_order_seq_cst); }  // this rank is about to join
    bool is_exposed() const { return is_exposed_.load(std::memory_order_seq_cst); }
    void conceal();  // undoes it; nobody of another host touches this rank's memory when it returns
    // Asked about ranks that may have come, or grown, before we were told. `also_gone`: nobody tells by itself who has
    // come in the place of a rank that is gone.
    void set_catch_up(CatchUp catch_up, bool also_gone);

    Status open() { return object_state_.open(); }          // this rank has joined
    Status shut(Status code, const std::string& sentence);  // left or evicted
    void close();  // ends the object; idempotent. Its addresses stay reserved while views of its memory exist
    void disown() { object_state_.disown(); }  // in a forked child

    // For users. `type` is a BmCopyType, `flags` are those of copy/type.h, `stream` is a handle or 0.
    Status copy(std::uintptr_t source, std::uintptr_t target, std::size_t size_bytes, std::uint32_t type,
                std::uint64_t flags = 0, std::uint64_t stream = 0);
    Status copy_batch(const BatchArrays& batch, std::size_t count, std::uint32_t type, std::uint64_t flags = 0,
                      std::uint64_t stream = 0);
    Status copy_2d(const Rectangle& rectangle, std::uint32_t type, std::uint64_t flags = 0, std::uint64_t stream = 0);
    // A copy that is not queued, if no other host has to be waited for; otherwise nothing has happened.
    std::optional<Status> copy_if_near(const Piece& piece, std::uint32_t type);
    std::optional<Status> copy_if_near(const Rectangle& rectangle, std::uint32_t type);
    Status wait();  // for all queued copies; returns and forgets the first failure since the last wait

    Status view(std::uint32_t rank, Tier tier, std::uint64_t offset, std::uint64_t size_bytes,
                std::shared_ptr<View>& made);
    Status check_usable() const { return object_state_.check_usable(); }  // not closed, not of a parent process
    std::uint32_t rank_of(std::uintptr_t address) const;  // kNoRank, with a last error, if it is nobody's

    const Layout& layout() const { return layout_; }
    const SlotTable& slots() const { return slots_; }
    std::uint32_t local_rank() const { return local_rank_; }
    const std::string& object_name() const { return object_name_; }
    bool is_open() const { return object_state_.is_open(); }
    bool is_closed() const { return object_state_.is_closed(); }
    bool is_disowned() const { return fork_guard_.in_forked_child(); }

private:
    friend class View;

    Space(const Config& config, const Layout& layout, std::unique_ptr<Reservation> reservation);
    void unpin(std::uint32_t rank);
    void stop_serving();
    void retire();
    void retire_in_child();

    template <typename Request>  // one of those of CopyRequest
    std::optional<Status> run_near(const Request& request, std::uint32_t type);
    template <typename Request>
    Status run(const Request& request, std::uint32_t type);
    template <typename Request>
    Status run_far(const Request& request, std::uint32_t type, std::vector<std::uint32_t>& late_ranks);
    template <typename Request>
    Status run_long(rcu::ReadGuard& guard, const Request& request, std::uint32_t type, const Resolution& found);
    template <typename Request>
    std::vector<std::uint32_t> late_ranks(const Request& request, Status failure) const;
    Status catch_up(const std::vector<std::uint32_t>& ranks);
    template <typename TryAgain>
    Status after_news(const std::vector<std::uint32_t>& late_ranks, Status failure, TryAgain try_again);
    Status explain_failure(const Outcome& outcome, std::size_t total_bytes, Status now) const;
    template <typename Request>
    Status check_queued(const Request& request, std::uint32_t type);
    Status queue(CopyRequest request, std::uint32_t type, std::uint64_t flags, std::uint64_t stream);
    std::shared_ptr<Stream> own_stream();

    const ForkGuard fork_guard_;
    const Layout layout_;
    const std::uint32_t local_rank_;
    const std::string object_name_;
    const std::chrono::nanoseconds stall_limit_;
    CopyEngine& engine_;
    ObjectState object_state_;
    SlotTable slots_;
    const Resolver resolver_;

    PendingCopies pending_;
    std::mutex stream_mutex_;
    std::shared_ptr<Stream> stream_;  // for asynchronous copies that name none; made by the first

    std::atomic<bool> is_exposed_{false};
    std::mutex serve_mutex_;  // for the following
    std::shared_ptr<ExposedSlot> exposed_;
    std::unique_ptr<tcp::ServedMemory> served_;
    std::shared_ptr<const CatchUp> catch_up_;  // nullptr: nobody to ask
    std::atomic<bool> asks_for_gone_{false};
    UcxSlot ucx_slot_;

    std::mutex retire_mutex_;
    bool retired_ = false;         // the addresses were given back
    std::shared_ptr<Space> heir_;  // in a forked child: has our addresses, and our views count as its own
};

}  // namespace memfabric
