// SPDX-License-Identifier: Apache-2.0
//
// What a kernel sees of an object that the C interface made. It includes both interfaces: C++ tells their names apart.
#include <smem/device/smem_shm_aicore_base_api.h>
#include <smem/host/smem_shm.h>

#include <cstring>

extern "C" int kernel_sees(uint32_t id, uint32_t rank, uint32_t rank_size, uint64_t symmetric_size,
                           const char* context);

extern "C" int kernel_sees(uint32_t id, uint32_t rank, uint32_t rank_size, uint64_t symmetric_size,
                           const char* context) {
    return smem_shm_get_global_rank(id) == rank && smem_shm_get_global_rank_size(id) == rank_size &&
           smem_shm_get_symmetric_size(id) == symmetric_size &&
           smem_shm_get_extra_context_size(id) == std::strlen(context) + 1 &&
           std::strcmp(static_cast<const char*>(smem_shm_get_extra_context_addr(id)), context) == 0;
}
