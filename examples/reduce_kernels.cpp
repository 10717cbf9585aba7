// SPDX-License-Identifier: Apache-2.0
//
// All-reduce over a symmetric heap as C++ kernels; reduce_kernels.py has the same ones for Numba. Compile with
//     c++ -std=c++17 -O3 -march=native -shared -fPIC -I<mf.get_include_path()> reduce_kernels.cpp -o reduce_kernels.so
#include <algorithm>

#include "smem/device/smem_shm_aicore_base_api.h"

namespace {

constexpr uint64_t kBlock = 8192;  // floats that stay in a core's cache while they are summed
constexpr uint64_t kForever = uint64_t{1} << 62;

float* floats_of(uint32_t rank, uint64_t first = 0) {
    return static_cast<float*>(smem_shm_ptr(rank, first * sizeof(float)));
}

void add(float* __restrict sums, const float* __restrict more, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) sums[i] += more[i];
}

}  // namespace

// Every rank reads everybody's floats and stores the sums at byte `result` of its own memory.
extern "C" void all_reduce_one_shot(uint64_t count, uint64_t result) {
    auto* out = static_cast<float*>(smem_shm_ptr(smem_shm_get_global_rank(), result));
    std::copy_n(floats_of(0), count, out);
    for (uint32_t peer = 1; peer < smem_shm_get_global_rank_size(); ++peer) add(out, floats_of(peer), count);
}

// Every rank sums its share of the floats and stores the sums on all ranks, where the floats were. Between two
// barriers.
extern "C" void all_reduce_in_place(uint64_t count) {
    const uint64_t rank = smem_shm_get_global_rank(), size = smem_shm_get_global_rank_size();
    float sums[kBlock];
    for (uint64_t start = count * rank / size, end = count * (rank + 1) / size; start < end; start += kBlock) {
        const uint64_t length = std::min(kBlock, end - start);
        const auto bytes = static_cast<uint32_t>(length * sizeof(float));
        smem_shm_copy_gm2ub(sums, floats_of(0, start), bytes);
        for (uint32_t peer = 1; peer < size; ++peer) add(sums, floats_of(peer, start), length);
        for (uint32_t peer = 0; peer < size; ++peer) smem_shm_copy_ub2gm(floats_of(peer, start), sums, bytes);
    }
}

// Shares travel around the ring; `signals` is the offset of a zeroed word that counts each rank's steps.
extern "C" bool all_reduce_ring(uint64_t count, uint64_t signals) {
    const uint32_t rank = smem_shm_get_global_rank(), size = smem_shm_get_global_rank_size();
    const uint32_t left = (rank + size - 1) % size, right = (rank + 1) % size;
    const auto steps_of = [&](uint32_t peer) { return static_cast<int64_t*>(smem_shm_ptr(peer, signals)); };
    for (uint32_t step = 0; step < 2 * (size - 1); ++step) {
        if (!smem_shm_wait_until_i64(steps_of(left), SMEM_SHM_CMP_GE, step, kForever)) return false;
        if (!smem_shm_wait_until_i64(steps_of(right), SMEM_SHM_CMP_GE, step, kForever)) return false;
        const uint64_t share = (rank + 2 * size - 1 - step) % size;
        const uint64_t begin = count * share / size, length = count * (share + 1) / size - begin;
        if (step < size - 1) {
            add(floats_of(rank, begin), floats_of(left, begin), length);
        } else {
            std::copy_n(floats_of(left, begin), length, floats_of(rank, begin));
        }
        smem_shm_atomic_add_i64(steps_of(rank), 1);
    }
    return true;
}
