// SPDX-License-Identifier: Apache-2.0
//
// One object's address space: resolves addresses to ranks, checks and runs copies, and follows the control plane, which
// says whose memory is where and who is gone. A copy never touches memory that is being unmapped, and never reports
// success for memory whose owner was revoked meanwhile.
//
// Life of an object: make → attach, activate, … → open ⇄ shut → close. Copies work while it is open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "copy/engine.h"
#include "copy/request.h"
#include "memory/layout.h"
#include "memory/slot_table.h"
#include "endpoint/frames.h"
#include "space/exposed_slot.h"
#include "space/object_state.h"
#include "space/pending_copies.h"
#include "space/resolver.h"
#include "space/view.h"
#include "sync/rcu.h"
#include "tcp/served_memory.h"

namespace memfabric {

// Thread contract: every method may be called from any thread. Copies block for their bytes only; `attach`, `drain` and
// `close` wait for running copies (one chunk of a large one), `wait` for queued ones; nothing else blocks. Every
// failure leaves a sentence in the thread's last error.
class MF_API Space : public std::enable_shared_from_this<Space> {
public:
    struct Config {
        std::uintptr_t base;
        std::uint32_t capacity;  // ranks
        std::uint64_t max_dram_bytes;
        std::uint64_t max_hbm_bytes;
        std::uint32_t local_rank;
        std::string object_name;  // as sentences call it: "bm object 7"
    };

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

    // From now on members of other hosts who say `connect` may touch this rank's memory while the rank has joined. The
    // same answer every time.
    Status serve(Connect& connect);

    Status open() { return object_state_.open(); }  // this rank has joined
    // Left or evicted.
    Status shut(Status code, const std::string& sentence) { return object_state_.shut(code, sentence); }
    void close();  // ends the object; idempotent. Its addresses stay reserved while views of its memory exist
    void disown() { object_state_.disown(); }  // in a forked child

    // For users. `type` is a BmCopyType, `flags` are those of copy/type.h, `stream` is a handle or 0.
    Status copy(std::uintptr_t source, std::uintptr_t target, std::size_t size_bytes, std::uint32_t type,
                std::uint64_t flags = 0, std::uint64_t stream = 0);
    Status copy_batch(const BatchArrays& batch, std::size_t count, std::uint32_t type, std::uint64_t flags = 0,
                      std::uint64_t stream = 0);
    Status copy_2d(const Rectangle& rectangle, std::uint32_t type, std::uint64_t flags = 0, std::uint64_t stream = 0);
    Status wait();  // for all queued copies; returns and forgets the first failure since the last wait

    Status view(std::uint32_t rank, Tier tier, std::uint64_t offset, std::uint64_t size_bytes,
                std::shared_ptr<View>& made);
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
    Status run(const Request& request, std::uint32_t type);
    template <typename Request>
    Status run_long(rcu::ReadGuard& guard, const Request& request, std::uint32_t type, const Resolution& found);
    Status queue(CopyRequest request, std::uint32_t type, std::uint64_t flags, std::uint64_t stream);
    std::shared_ptr<Stream> own_stream();

    const ForkGuard fork_guard_;
    const Layout layout_;
    const std::uint32_t local_rank_;
    const std::string object_name_;
    CopyEngine& engine_;
    ObjectState object_state_;
    SlotTable slots_;
    const Resolver resolver_;

    PendingCopies pending_;
    std::mutex stream_mutex_;
    std::shared_ptr<Stream> stream_;  // for asynchronous copies that name none; made by the first

    std::mutex serve_mutex_;
    std::shared_ptr<ExposedSlot> exposed_;
    std::unique_ptr<tcp::ServedMemory> served_;

    std::mutex retire_mutex_;
    bool retired_ = false;         // the addresses were given back
    std::shared_ptr<Space> heir_;  // in a forked child: has our addresses, and our views count as its own
};

}  // namespace memfabric
