/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Share Memory: a symmetric heap. Every rank has the same amount of memory, every rank reaches everybody's.
 *
 *     smem_shm_config_t config;
 *     smem_shm_config_init(&config);
 *     smem_shm_init("tcp://127.0.0.1:9000", 2, rank, 0, &config);                          rank 0 runs the store
 *     void *gva;
 *     smem_shm_t heap = smem_shm_create(0, 2, rank, 64 << 20, SMEMS_DATA_OP_MTE, 0, &gva); when all are there
 *     char *other = (char *)gva + (1 - rank) * smem_shm_get_symmetric_size(heap);
 *     other[0] = 1;                                                                        straight into the other's
 *     smem_shm_control_barrier(heap);
 *
 * Ranks may be C, C++ and Python programs, on one host and on several. Memory of ranks on other hosts is copied, not
 * addressed: smem_shm_copy of ../device/smem_shm_aicore_base_api.h, which kernels use, copies from and to everybody's.
 */
#ifndef MEMFABRIC_SMEM_SHM_H
#define MEMFABRIC_SMEM_SHM_H

#include "smem_shm_def.h"

/* Of the header for kernels, in C. */
#undef smem_shm_get_global_rank
#undef smem_shm_get_global_rank_size
#undef smem_shm_get_symmetric_size

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the membership ---------------------------------------------------------------------------------------------- */

/* Fills in the defaults. */
int32_t smem_shm_config_init(smem_shm_config_t* config);

/*
 * Enters the cluster whose store is at `configStoreIpPort` ("tcp://host:port", "tcp6://[v6]:port") as rank `rankId` of
 * `worldSize` (1 to 1024). `deviceId` is accepted. Again while initialised: 0 and nothing happens.
 */
int32_t smem_shm_init(const char* configStoreIpPort, uint32_t worldSize, uint32_t rankId, uint16_t deviceId,
                      smem_shm_config_t* config);

/* Destroys all objects of this process and leaves the cluster. Idempotent. */
void smem_shm_uninit(uint32_t flags);

/* SMEMS_DATA_OP_MTE: what kernels can use everywhere. smem_shm_topology_can_reach has all that leads to a rank. */
uint32_t smem_shm_query_support_data_operation(void);

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/*
 * Creates object `id` (0 to 63) on the ranks 0 to rankSize-1 together and returns when all have everybody's memory.
 * `symmetricSize` bytes of each (up to 64 GiB, rounded up to 2 MiB), the same on all. `*gva` gets where the memory of
 * rank 0 begins: that of rank r is r * smem_shm_get_symmetric_size(handle) further.
 */
smem_shm_t smem_shm_create(uint32_t id, uint32_t rankSize, uint32_t rankId, uint64_t symmetricSize,
                           smem_shm_data_op_type dataOpType, uint32_t flags, void** gva);

/* Ends the object in this process, without waiting for others: call smem_shm_control_barrier before. */
int32_t smem_shm_destroy(smem_shm_t handle, uint32_t flags);

/* Gives the kernels of this rank 1 to 65536 bytes to read; the last call counts. */
int32_t smem_shm_set_extra_context(smem_shm_t handle, const void* context, uint32_t size);

uint32_t smem_shm_get_global_rank(smem_shm_t handle);
uint32_t smem_shm_get_global_rank_size(smem_shm_t handle); /* UINT32_MAX on failure, too */
uint64_t smem_shm_get_symmetric_size(smem_shm_t handle);   /* as it was rounded up */

/* `*reachInfo` gets the smem_shm_data_op_type bits that lead to that rank's memory from here. */
int32_t smem_shm_topology_can_reach(smem_shm_t handle, uint32_t remoteRank, uint32_t* reachInfo);

/* ---- together ---------------------------------------------------------------------------------------------------- */

/*
 * Returns when every rank of the object has called it. SMEM_TIMEOUT names those that did not; SMEM_NOT_CONNECTED at
 * once when a rank has died or destroyed the object.
 */
int32_t smem_shm_control_barrier(smem_shm_t handle);

/* Everybody's `sendSize` bytes (1 to 65536, the same on all) in order of rank; `recvSize` is sendSize * rank size. */
int32_t smem_shm_control_allgather(smem_shm_t handle, const char* sendBuf, uint32_t sendSize, char* recvBuf,
                                   uint32_t recvSize);

/* The same among the `rankSize` members of subgroup `key`, of which this rank is number `rankId`. */
int32_t smem_shm_subgroup_barrier(smem_shm_t handle, const char* key, uint32_t rankSize, uint32_t rankId);
int32_t smem_shm_subgroup_allgather(smem_shm_t handle, const char* key, uint32_t rankSize, uint32_t rankId,
                                    const char* sendBuf, uint32_t sendSize, char* recvBuf, uint32_t recvSize);

/* `*value` gets the lowest number below `limit` that no rank has; it is ours until released, destroyed or dead. */
int32_t smem_shm_atomic_alloc_value(smem_shm_t handle, uint32_t limit, int32_t* value);
int32_t smem_shm_atomic_release_value(smem_shm_t handle, int32_t value);

/* `exit` runs on a thread of the library's own when any rank calls smem_shm_global_exit; the last one given counts. */
int32_t smem_shm_register_exit(smem_shm_t handle, void (*exit)(int));

/* Makes every rank's exit function run with `status`, this one's too. Does not wait. */
void smem_shm_global_exit(smem_shm_t handle, int status);

#ifdef __cplusplus
}
#endif

#endif
