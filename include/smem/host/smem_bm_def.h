/* SPDX-License-Identifier: Apache-2.0 */
/* Types of Big Memory. */
#ifndef MEMFABRIC_SMEM_BM_DEF_H
#define MEMFABRIC_SMEM_BM_DEF_H

#include "smem_def.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pool of memory; made by smem_bm_create, valid until smem_bm_destroy. Not an address. */
typedef void* smem_bm_t;

#define SMEM_BM_TIMEOUT_MAX UINT32_MAX
#define SMEM_BM_URL_SIZE 64
#define SMEM_BM_TAG_SIZE 32
#define SMEM_BM_TAG_OP_INFO_SIZE 256

/* Which ways bytes may go; bits. SDMA and DEVICE_*: the best there is. HOST_*: this one and no other. */
typedef enum {
    SMEMB_DATA_OP_SDMA = 1,
    SMEMB_DATA_OP_HOST_RDMA = 2,
    SMEMB_DATA_OP_ROCE = SMEMB_DATA_OP_HOST_RDMA,
    SMEMB_DATA_OP_HOST_TCP = 4,
    SMEMB_DATA_OP_DEVICE_RDMA = 8,
    SMEMB_DATA_OP_HOST_URMA = 16,
    SMEMB_DATA_OP_HOST_SHM = 32,
    SMEMB_DATA_OP_DEVICE_URMA = 64,
    SMEMB_DATA_OP_DEVICE_UBOE = 128,
    SMEMB_DATA_OP_BUTT
} smem_bm_data_op_type;

/* From where to where: L local, H local host, G global, GH global host memory. AUTO goes by the addresses. */
typedef enum {
    SMEMB_COPY_L2G = 0,
    SMEMB_COPY_G2L = 1,
    SMEMB_COPY_G2H = 2,
    SMEMB_COPY_H2G = 3,
    SMEMB_COPY_L2GH = 4,
    SMEMB_COPY_GH2L = 5,
    SMEMB_COPY_GH2H = 6,
    SMEMB_COPY_H2GH = 7,
    SMEMB_COPY_G2G = 8,
    SMEMB_COPY_AUTO = 9,
    SMEMB_COPY_BUTT
} smem_bm_copy_type;

/* Flags of copies, which may be or-ed. */
#define SMEM_BM_COPY_ASYNC 1u  /* returns at once; ordered with the object's others, see smem_bm_wait */
#define SMEM_BM_COPY_STREAM 4u /* returns at once; queued on `stream` */
#ifndef ASYNC_COPY_FLAG
#define ASYNC_COPY_FLAG SMEM_BM_COPY_ASYNC
#endif

/* DEVICE types mean the HBM space of an object, HOST types its DRAM space. */
typedef enum {
    SMEM_MEM_TYPE_LOCAL_DEVICE = 0,
    SMEM_MEM_TYPE_LOCAL_HOST = 1,
    SMEM_MEM_TYPE_DEVICE = 2,
    SMEM_MEM_TYPE_HOST = 3,
    SMEM_MEM_TYPE_BUTT
} smem_bm_mem_type;
typedef smem_bm_mem_type smem_bm_mem_type_t;

typedef enum {
    SMEM_GROUP_EVENT_JOIN = 0,
    SMEM_GROUP_EVENT_LEAVE = 1 /* also: died */
} smem_bm_group_event_t;

/* Runs on a thread of the library's own, one event after the other. */
typedef void (*smem_bm_group_event_cb)(smem_bm_t handle, uint32_t rankId, smem_bm_group_event_t event, void* context);

/* Fill it with smem_bm_config_init, then change what you want. Time-outs are seconds, at least 1. */
typedef struct {
    uint32_t initTimeout;             /* 120 */
    uint32_t createTimeout;           /* 120 */
    uint32_t controlOperationTimeout; /* 120 */
    bool startConfigStoreServer;      /* true: run the store in this process where that is its part */
    bool startConfigStoreOnly;        /* false */
    bool dynamicWorldSize;            /* false; members may always come and go */
    bool unifiedAddressSpace;         /* true, and must stay so */
    bool autoRanking;                 /* true: the store gives the lowest free rank */
    uint32_t rankId;                  /* this process's rank if autoRanking is false */
    uint32_t flags;                   /* 0 */
    char hcomUrl[SMEM_BM_URL_SIZE];   /* "": where other hosts reach this one for data, "tcp://ip[/mask]:port" */
    smem_tls_config hcomTlsConfig;    /* off: data between hosts has the certificates of the store, if that has some */
    smem_tls_config storeTlsConfig;   /* off */
} smem_bm_config_t;

/* Bits of smem_bm_create_option_t.flags: 0-6 the NUMA node for DRAM, if bit 7 is set. */
#define SMEM_BM_CREATE_NUMA_NODE (1u << 7)
#define SMEM_BM_CREATE_WITH_SHM (1u << 8)   /* DRAM comes from dramShmFd */
#define SMEM_BM_DRAM_MAP_HOST_VA (1u << 9)  /* always so */
#define SMEM_BM_DRAM_BEST_EFFORT (1u << 10) /* the NUMA node is a preference only */

/* Zero it, then set what you want. */
typedef struct {
    uint64_t maxDramSize;   /* the size of every rank's slot, up to 2 TiB; the same on all ranks */
    uint64_t maxHbmSize;    /* up to 64 GiB */
    uint64_t localDRAMSize; /* what this rank contributes, rounded up to 2 MiB; may be 0 */
    uint64_t localHBMSize;
    smem_bm_data_op_type dataOpType;
    bool enable56BitsGva; /* accepted; addresses have 47 bits */
    uint32_t flags;
    char tag[SMEM_BM_TAG_SIZE];               /* "" or this rank's kind, up to 30 letters, digits and underscores */
    char tagOpInfo[SMEM_BM_TAG_OP_INFO_SIZE]; /* "" or rules between kinds: "tagA:HOST_SHM:tagB,…" */
    int dramShmFd;                            /* a memory file, with SMEM_BM_CREATE_WITH_SHM */
} smem_bm_create_option_t;

typedef struct {
    const void* src;
    void* dest;
    size_t dataSize;
    void* stream; /* NULL, or with SMEM_BM_COPY_STREAM a handle of smem_stream_create */
} smem_copy_params;

typedef struct {
    void** sources;
    void** destinations;
    const uint64_t* dataSizes;
    uint32_t batchSize; /* 1 to 1048576 */
    void* stream;
} smem_batch_copy_params;

SMEM_PIN_SIZE(smem_bm_config_t, 3680);
SMEM_PIN_FIELD(smem_bm_config_t, initTimeout, 0);
SMEM_PIN_FIELD(smem_bm_config_t, createTimeout, 4);
SMEM_PIN_FIELD(smem_bm_config_t, controlOperationTimeout, 8);
SMEM_PIN_FIELD(smem_bm_config_t, startConfigStoreServer, 12);
SMEM_PIN_FIELD(smem_bm_config_t, startConfigStoreOnly, 13);
SMEM_PIN_FIELD(smem_bm_config_t, dynamicWorldSize, 14);
SMEM_PIN_FIELD(smem_bm_config_t, unifiedAddressSpace, 15);
SMEM_PIN_FIELD(smem_bm_config_t, autoRanking, 16);
SMEM_PIN_FIELD(smem_bm_config_t, rankId, 20);
SMEM_PIN_FIELD(smem_bm_config_t, flags, 24);
SMEM_PIN_FIELD(smem_bm_config_t, hcomUrl, 28);
SMEM_PIN_FIELD(smem_bm_config_t, hcomTlsConfig, 92);
SMEM_PIN_FIELD(smem_bm_config_t, storeTlsConfig, 1885);
SMEM_PIN_SIZE(smem_bm_create_option_t, 336);
SMEM_PIN_FIELD(smem_bm_create_option_t, maxDramSize, 0);
SMEM_PIN_FIELD(smem_bm_create_option_t, maxHbmSize, 8);
SMEM_PIN_FIELD(smem_bm_create_option_t, localDRAMSize, 16);
SMEM_PIN_FIELD(smem_bm_create_option_t, localHBMSize, 24);
SMEM_PIN_FIELD(smem_bm_create_option_t, dataOpType, 32);
SMEM_PIN_FIELD(smem_bm_create_option_t, enable56BitsGva, 36);
SMEM_PIN_FIELD(smem_bm_create_option_t, flags, 40);
SMEM_PIN_FIELD(smem_bm_create_option_t, tag, 44);
SMEM_PIN_FIELD(smem_bm_create_option_t, tagOpInfo, 76);
SMEM_PIN_FIELD(smem_bm_create_option_t, dramShmFd, 332);
SMEM_PIN_SIZE(smem_copy_params, 32);
SMEM_PIN_FIELD(smem_copy_params, src, 0);
SMEM_PIN_FIELD(smem_copy_params, dest, 8);
SMEM_PIN_FIELD(smem_copy_params, dataSize, 16);
SMEM_PIN_FIELD(smem_copy_params, stream, 24);
SMEM_PIN_SIZE(smem_batch_copy_params, 40);
SMEM_PIN_FIELD(smem_batch_copy_params, sources, 0);
SMEM_PIN_FIELD(smem_batch_copy_params, destinations, 8);
SMEM_PIN_FIELD(smem_batch_copy_params, dataSizes, 16);
SMEM_PIN_FIELD(smem_batch_copy_params, batchSize, 24);
SMEM_PIN_FIELD(smem_batch_copy_params, stream, 32);
SMEM_PIN_SIZE(smem_bm_data_op_type, 4);
SMEM_PIN_SIZE(smem_bm_copy_type, 4);
SMEM_PIN_SIZE(smem_bm_mem_type, 4);
SMEM_PIN_SIZE(smem_bm_group_event_t, 4);

#ifdef __cplusplus
}
#endif

#endif
