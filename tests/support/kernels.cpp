// SPDX-License-Identifier: Apache-2.0
//
// Kernels for the conformance tests, written against the header only; support/numba_kernels.py has the same ones.
#include <vector>

#include "smem/device/smem_shm_aicore_base_api.h"

extern "C" {

uint64_t kernel_identity(uint32_t id, uint64_t* result) {
    result[0] = smem_shm_get_global_rank(id);
    result[1] = smem_shm_get_global_rank_size(id);
    result[2] = smem_shm_get_symmetric_size(id);
    result[3] = smem_shm_get_gva(id);
    result[4] = reinterpret_cast<uint64_t>(smem_shm_get_extra_context_addr(id));
    result[5] = smem_shm_get_extra_context_size(id);
    return reinterpret_cast<uint64_t>(smem_shm_ptr(0, 0, id));
}

// The sum of the context's bytes.
uint64_t kernel_sum_context(uint32_t id) {
    const auto* bytes = static_cast<const uint8_t*>(smem_shm_get_extra_context_addr(id));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < smem_shm_get_extra_context_size(id); ++i) sum += bytes[i];
    return sum;
}

// Copies our first `count` floats through a buffer of our own to offset `to` of the right neighbour, doubled.
void kernel_shift_doubled(uint32_t id, uint64_t count, uint64_t to) {
    const uint32_t rank = smem_shm_get_global_rank(id);
    const uint32_t right = (rank + 1) % smem_shm_get_global_rank_size(id);
    std::vector<float> buffer(count);
    const auto bytes = static_cast<uint32_t>(count * sizeof(float));
    smem_shm_copy_gm2ub(buffer.data(), static_cast<const float*>(smem_shm_ptr(rank, 0, id)), bytes);
    for (float& value : buffer) value *= 2;
    smem_shm_copy_ub2gm(static_cast<float*>(smem_shm_ptr(right, to, id)), buffer.data(), bytes);
    smem_shm_fence();
}

// Reads the left neighbour's first bytes into our memory at `to`, then puts them to the right one at `to2`.
void kernel_get_and_put(uint32_t id, uint64_t size, uint64_t to, uint64_t to2) {
    const uint32_t rank = smem_shm_get_global_rank(id), ranks = smem_shm_get_global_rank_size(id);
    const uint32_t left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    auto* mine = static_cast<uint8_t*>(smem_shm_ptr(rank, to, id));
    smem_shm_roce_read(static_cast<const uint8_t*>(smem_shm_ptr(left, 0, id)), mine, left, 0, size);
    smem_shm_roce_quiet(left, 0);
    smem_shm_roce_write(mine, static_cast<uint8_t*>(smem_shm_ptr(right, to2, id)), right, 0, size);
    smem_shm_roce_quiet();
}

// Adds 1 `times` times to two counters of rank 0, of 32 and of 64 bits.
void kernel_count(uint32_t id, uint64_t times) {
    auto* narrow = static_cast<int32_t*>(smem_shm_ptr(0, 0, id));
    auto* wide = static_cast<int64_t*>(smem_shm_ptr(0, 64, id));
    for (uint64_t i = 0; i < times; ++i) {
        smem_shm_atomic_add_i32(narrow, 1);
        smem_shm_atomic_add_i64(wide, 1);
    }
}

// The same with a lock made of compare-and-swap around plain additions.
void kernel_count_locked(uint32_t id, uint64_t times) {
    auto* lock = static_cast<int32_t*>(smem_shm_ptr(0, 0, id));
    auto* plain = static_cast<int64_t*>(smem_shm_ptr(0, 64, id));
    for (uint64_t i = 0; i < times; ++i) {
        while (smem_shm_atomic_compare_swap_i32(lock, 0, 1) != 0) sched_yield();
        *plain += 1;
        smem_shm_atomic_store_i32(lock, 0);
    }
}

// A token that goes round: waits for our turn, passes it on. Returns the last value seen; -1 if it never came.
int64_t kernel_pass_token(uint32_t id, uint64_t rounds, uint64_t most) {
    const uint32_t rank = smem_shm_get_global_rank(id), ranks = smem_shm_get_global_rank_size(id);
    auto* own = static_cast<int64_t*>(smem_shm_ptr(rank, 0, id));
    auto* next = static_cast<int64_t*>(smem_shm_ptr((rank + 1) % ranks, 0, id));
    int64_t seen = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
        const int64_t token = static_cast<int64_t>(round) * ranks + rank;
        if (token != 0 && !smem_shm_wait_until_i64(own, SMEM_SHM_CMP_GE, token, most)) return -1;
        seen = token;
        smem_shm_atomic_store_i64(next, token + 1);
    }
    return seen;
}

// Which of the six comparisons hold for the word 5 and the value: a bit each; 32-bit ones in the upper half.
uint64_t kernel_compare(uint32_t id, int64_t value) {
    auto* wide = static_cast<int64_t*>(smem_shm_ptr(smem_shm_get_global_rank(id), 0, id));
    auto* narrow = static_cast<int32_t*>(smem_shm_ptr(smem_shm_get_global_rank(id), 64, id));
    smem_shm_atomic_store_i64(wide, 5);
    smem_shm_atomic_store_i32(narrow, 5);
    uint64_t bits = 0;
    for (int compare = 0; compare < 6; ++compare) {
        const auto how = static_cast<smem_shm_compare>(compare);
        if (smem_shm_wait_until_i64(wide, how, value, 3)) bits |= 1u << compare;
        if (smem_shm_wait_until_i32(narrow, how, static_cast<int32_t>(value), 3)) bits |= 1u << (compare + 16);
    }
    return bits;
}

// Places that do not exist: how many of them are not null.
uint64_t kernel_nowhere(uint32_t id) {
    const uint32_t ranks = smem_shm_get_global_rank_size(id);
    return (smem_shm_ptr(ranks, 0, id) != nullptr) + (smem_shm_ptr(0, smem_shm_get_symmetric_size(id), id) != nullptr) +
           (smem_shm_ptr(0, 0, 63) != nullptr) + (smem_shm_ptr(0, 0, 64) != nullptr) +
           (smem_shm_get_global_rank(63) != UINT32_MAX);
}

uint64_t kernel_is_far(uint32_t id, uint64_t rank) { return smem_shm_is_far(static_cast<uint32_t>(rank), id); }

// Puts `size` bytes of our own memory to the same place in that rank's; whether it worked.
uint64_t kernel_put(uint32_t id, uint64_t rank, uint64_t size) {
    return smem_shm_copy(smem_shm_ptr(static_cast<uint32_t>(rank), 0, id),
                         smem_shm_ptr(smem_shm_get_global_rank(id), 0, id), size) == 0;
}
}
