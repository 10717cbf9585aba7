/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Big Memory: the memory of many processes as one pool with global addresses.
 *
 *     smem_bm_config_t config;
 *     smem_bm_config_init(&config);
 *     smem_bm_init("tcp://127.0.0.1:9000", 4, 0, &config);                   up to 4 ranks; the first runs the store
 *     smem_bm_t pool = smem_bm_create(0, 4, SMEMB_DATA_OP_SDMA, 64 << 20, 0, 0);   64 MiB of DRAM from each
 *     smem_bm_join(pool, 0);
 *     void *target = smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, 1);   where rank 1's begins, on every rank
 *     smem_copy_params params = {source, target, size, NULL};
 *     smem_bm_copy(pool, &params, SMEMB_COPY_H2G, 0);
 *
 * C, C++ and Python programs are members of the same pools. On one host a joined rank's memory can also be read and
 * written directly at its global address.
 */
#ifndef MEMFABRIC_SMEM_BM_H
#define MEMFABRIC_SMEM_BM_H

#include "smem_bm_def.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the membership ---------------------------------------------------------------------------------------------- */

/* Fills in the defaults. */
int32_t smem_bm_config_init(smem_bm_config_t* config);

/*
 * Enters the cluster whose store is at `storeURL` ("tcp://host:port"). `worldSize`: how many ranks there can be, 1 to
 * 1024, the same on all. `deviceId` is accepted. Again while initialised: 0 and nothing happens.
 */
int32_t smem_bm_init(const char* storeURL, uint32_t worldSize, uint16_t deviceId, const smem_bm_config_t* config);

/* Destroys all objects of this process and leaves the cluster. Idempotent. */
void smem_bm_uninit(uint32_t flags);

/* This process's rank. */
uint32_t smem_bm_get_rank_id(void);

/* The store has moved to another address. */
int32_t smem_bm_update_store_url(const char* storeURL);

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/*
 * Creates object `id` with these sizes, which all ranks pass alike; they are rounded up to 2 MiB. `memberSize` is
 * accepted: how many ranks there can be was said by smem_bm_init.
 */
smem_bm_t smem_bm_create(uint32_t id, uint32_t memberSize, smem_bm_data_op_type dataOpType, uint64_t localDRAMSize,
                         uint64_t localHBMSize, uint32_t flags);

/* The same with more choices: ranks may contribute different sizes, up to the same maximum. */
smem_bm_t smem_bm_create2(uint32_t id, const smem_bm_create_option_t* option);

/* Leaves and frees everything of the object in this process. */
void smem_bm_destroy(smem_bm_t handle);

/*
 * Takes part. Does not wait for ranks that have not joined; reaches, and is reached by, all that have. Also with a
 * third argument `void **localGvaAddress`: gets where this rank's memory begins (see smem_bm_ptr), unless it is NULL.
 */
int32_t smem_bm_join(smem_bm_t handle, uint32_t flags);

/* Stops taking part: others' copies to us fail with SMEM_NOT_CONNECTED. */
int32_t smem_bm_leave(smem_bm_t handle, uint32_t flags);

/* Adds `size` bytes (rounded up to 2 MiB) to this rank's part; others can use them when it returns. */
int32_t smem_bm_extend_local_mem(smem_bm_t handle, smem_bm_mem_type memType, uint64_t size);

/* `cb` runs when a rank joins, leaves or dies; NULL stops it. `context` is handed to it. */
int32_t smem_bm_set_group_event_handler(smem_bm_t handle, smem_bm_group_event_cb cb, void* context);

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* Bytes that this rank contributes. */
uint64_t smem_bm_get_local_mem_size_by_mem_type(smem_bm_t handle, smem_bm_mem_type memType);

/* Where that rank's memory begins, joined or not: the same number on all ranks. */
void* smem_bm_ptr_by_mem_type(smem_bm_t handle, smem_bm_mem_type memType, uint16_t peerRankId);

/* The first release's forms of the two: of HBM if the object has any, of DRAM otherwise. */
uint64_t smem_bm_get_local_mem_size(smem_bm_t handle);
void* smem_bm_ptr(smem_bm_t handle, uint16_t peerRankId);

/* Whose memory is at that global address, joined or not. */
uint32_t smem_bm_get_rank_id_by_gva(smem_bm_t handle, void* gva);

/* The pointer for a global address in this process (the same number); fails for what is not mapped here. */
int32_t smem_bm_gva_to_va(smem_bm_t handle, void* gva, smem_bm_mem_type vaMemType, void** va);

/* Announces local memory that copies will often use, and takes it back. A hint. */
int32_t smem_bm_register_user_mem(smem_bm_t handle, uint64_t addr, uint64_t size);
int32_t smem_bm_unregister_user_mem(smem_bm_t handle, uint64_t addr);

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/*
 * Copies; the bytes are in place when it returns 0, unless flags say otherwise. Global ranges must lie in one rank's
 * memory. Touches Python only to ask about a rank that is not known yet, or gone, and to log a failure. Also as
 * (handle, src, dest, size, t, flags).
 *
 * SMEM_INVALID_PARAM a bad address, range, size, type or stream; SMEM_NOT_STARTED before join; SMEM_NOT_CONNECTED the
 * rank is not there; SMEM_PARTIAL_FAILED it went away meanwhile, and the target is undefined.
 */
int32_t smem_bm_copy(smem_bm_t handle, smem_copy_params* params, smem_bm_copy_type t, uint32_t flags);

/* Many independent pieces, all checked before the first byte moves. */
int32_t smem_bm_copy_batch(smem_bm_t handle, smem_batch_copy_params* params, smem_bm_copy_type t, uint32_t flags);

/* `height` rows of `width` bytes, which begin `spitch` bytes apart in the source and `dpitch` in the target. */
int32_t smem_bm_copy_2d(smem_bm_t handle, const void* src, uint64_t spitch, void* dest, uint64_t dpitch, uint64_t width,
                        uint64_t height, smem_bm_copy_type t, uint32_t flags);

/*
 * Returns when all asynchronous copies of the object have ended: 0, or the code of the first that failed since the last
 * wait. Also as (handle, params, t, flags), whose further arguments are not looked at.
 */
int32_t smem_bm_wait(smem_bm_t handle);

#ifdef __cplusplus
}
#endif

/* ---- the same calls as earlier versions of the interface spell them ---------------------------------------------- */

#ifdef __cplusplus
extern "C++" { /* also for programs that include this inside of extern "C" */
inline int32_t smem_bm_join(smem_bm_t handle, uint32_t flags, void** localGvaAddress) {
#else
static inline int32_t smem_bm_join_3(smem_bm_t handle, uint32_t flags, void** localGvaAddress) {
#endif
    const int32_t code = smem_bm_join(handle, flags);
    if (code == SMEM_OK && localGvaAddress != NULL) {
        *localGvaAddress = smem_bm_ptr(handle, (uint16_t)smem_bm_get_rank_id());
    }
    return code;
}

#ifdef __cplusplus
inline int32_t smem_bm_copy(smem_bm_t handle, const void* src, void* dest, uint64_t size, smem_bm_copy_type t,
                            uint32_t flags) {
#else
static inline int32_t smem_bm_copy_6(smem_bm_t handle, const void* src, void* dest, uint64_t size, smem_bm_copy_type t,
                                     uint32_t flags) {
#endif
    smem_copy_params params;
    params.src = src;
    params.dest = dest;
    params.dataSize = (size_t)size;
    params.stream = NULL;
    return smem_bm_copy(handle, &params, t, flags);
}

#ifdef __cplusplus
inline int32_t smem_bm_wait(smem_bm_t handle, smem_batch_copy_params*, smem_bm_copy_type, uint32_t) {
#else
static inline int32_t smem_bm_wait_4(smem_bm_t handle, smem_batch_copy_params* params, smem_bm_copy_type t,
                                     uint32_t flags) {
    (void)params;
    (void)t;
    (void)flags;
#endif
    return smem_bm_wait(handle);
}

#ifdef __cplusplus
}
#else
#define smem_bm_join(...) SMEM_CHOOSE_3(__VA_ARGS__, smem_bm_join_3, smem_bm_join, 0)(__VA_ARGS__)
#define smem_bm_copy(...)                                                                                          \
    SMEM_CHOOSE_24(__VA_ARGS__, SMEM_MANY(smem_bm_copy), smem_bm_copy, smem_bm_copy, smem_bm_copy_6, smem_bm_copy, \
                   smem_bm_copy, smem_bm_copy, smem_bm_copy, smem_bm_copy, 0)                                      \
    (__VA_ARGS__)
#define smem_bm_wait(...)                                                                                  \
    SMEM_CHOOSE_24(__VA_ARGS__, SMEM_MANY(smem_bm_wait_4), smem_bm_wait_4, smem_bm_wait_4, smem_bm_wait_4, \
                   smem_bm_wait_4, smem_bm_wait_4, smem_bm_wait_4, smem_bm_wait_4, smem_bm_wait, 0)        \
    (__VA_ARGS__)
#endif

#endif
