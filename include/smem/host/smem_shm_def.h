/* SPDX-License-Identifier: Apache-2.0 */
/* Types of Share Memory. */
#ifndef MEMFABRIC_SMEM_SHM_DEF_H
#define MEMFABRIC_SMEM_SHM_DEF_H

#include "smem_def.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A symmetric heap; made by smem_shm_create, valid until smem_shm_destroy. Not an address. */
typedef void* smem_shm_t;

#define SMEM_SHM_TIMEOUT_MAX UINT32_MAX
#define SMEM_SHM_CONTEXT_MAX 65536u
#define SMEM_SHM_GATHER_MAX 65536u

/* How a rank's memory can be reached; bits. */
typedef enum {
    SMEMS_DATA_OP_MTE = 1,
    SMEMS_DATA_OP_SDMA = 2,
    SMEMS_DATA_OP_RDMA = 4,
    SMEMS_DATA_OP_ROCE = SMEMS_DATA_OP_RDMA,
    SMEMS_DATA_OP_BUTT
} smem_shm_data_op_type;

/* Fill it with smem_shm_config_init, then change what you want. Time-outs are seconds, at least 1. */
typedef struct {
    uint32_t shmInitTimeout;          /* 120 */
    uint32_t shmCreateTimeout;        /* 120 */
    uint32_t controlOperationTimeout; /* 120: until all ranks must have come to a barrier or all-gather */
    bool startConfigStoreServer;      /* true: rank 0 runs the store */
    uint32_t flags;                   /* 0 */
} smem_shm_config_t;

SMEM_PIN_SIZE(smem_shm_config_t, 20);
SMEM_PIN_FIELD(smem_shm_config_t, shmInitTimeout, 0);
SMEM_PIN_FIELD(smem_shm_config_t, shmCreateTimeout, 4);
SMEM_PIN_FIELD(smem_shm_config_t, controlOperationTimeout, 8);
SMEM_PIN_FIELD(smem_shm_config_t, startConfigStoreServer, 12);
SMEM_PIN_FIELD(smem_shm_config_t, flags, 16);
SMEM_PIN_SIZE(smem_shm_data_op_type, 4);

#ifdef __cplusplus
}
#endif

#endif
