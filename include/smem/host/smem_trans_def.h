/* SPDX-License-Identifier: Apache-2.0 */
/* Types of Transfer. */
#ifndef MEMFABRIC_SMEM_TRANS_DEF_H
#define MEMFABRIC_SMEM_TRANS_DEF_H

#include "smem_bm_def.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A transfer engine; made by smem_trans_create, valid until smem_trans_destroy. Not an address. */
typedef void* smem_trans_t;

#define SMEM_TRANS_NIC_SIZE 64

/* Accepted; it hides nobody: any engine may read from and write to any other. */
typedef enum {
    SMEM_TRANS_NONE = 0,
    SMEM_TRANS_SENDER = 1,
    SMEM_TRANS_RECEIVER = 2,
    SMEM_TRANS_BOTH = 3,
    SMEM_TRANS_BUTT
} smem_trans_role_t;

/* Fill it with smem_trans_config_init, then change what you want. */
typedef struct {
    smem_trans_role_t role;          /* SMEM_TRANS_SENDER */
    uint32_t initTimeout;            /* 120; at least 1. Accepted; MF_TRANSFER_TIMEOUT_MS counts */
    uint32_t deviceId;               /* UINT32_MAX; accepted */
    uint32_t flags;                  /* 0 */
    smem_bm_data_op_type dataOpType; /* SMEMB_DATA_OP_SDMA */
    char nic[SMEM_TRANS_NIC_SIZE];   /* "": where peers of other hosts bring data, "tcp://ip[/mask]:port" */
    smem_tls_config hcomTlsConfig;   /* off: data between hosts has the certificates of the store, if that has some */
} smem_trans_config_t;

/* Runs on a thread of the library's own when a peer that was reached ends or dies. */
typedef void (*smem_trans_peer_down_callback_t)(const char* peerUniqueId, void* userData);

/* 16-bit numbers that become 8-bit integers at the peer. */
typedef struct {
    const char* remoteUniqueId;
    void** localAddrs;  /* of the numbers */
    void** remoteAddrs; /* half as many bytes arrive there */
    size_t* dataSizes;  /* bytes at localAddrs */
    float** scale;      /* of each piece: unitNum factors, */
    float** offset;     /* and what is added to the products; NULL, or a NULL in it: nothing */
    uint32_t batchSize;
    uint32_t unitNum;   /* units of equal size in each piece */
    void* stream;       /* NULL: done when the call returns */
    uint32_t inputType; /* 0 bfloat16, 1 float16 */
    uint32_t flags;     /* 0 */
} smem_trans_quant_copy_param_t;

SMEM_PIN_SIZE(smem_trans_role_t, 4);
SMEM_PIN_SIZE(smem_trans_config_t, 1880);
SMEM_PIN_FIELD(smem_trans_config_t, role, 0);
SMEM_PIN_FIELD(smem_trans_config_t, initTimeout, 4);
SMEM_PIN_FIELD(smem_trans_config_t, deviceId, 8);
SMEM_PIN_FIELD(smem_trans_config_t, flags, 12);
SMEM_PIN_FIELD(smem_trans_config_t, dataOpType, 16);
SMEM_PIN_FIELD(smem_trans_config_t, nic, 20);
SMEM_PIN_FIELD(smem_trans_config_t, hcomTlsConfig, 84);
SMEM_PIN_SIZE(smem_trans_quant_copy_param_t, 72);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, remoteUniqueId, 0);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, localAddrs, 8);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, remoteAddrs, 16);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, dataSizes, 24);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, scale, 32);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, offset, 40);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, batchSize, 48);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, unitNum, 52);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, stream, 56);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, inputType, 64);
SMEM_PIN_FIELD(smem_trans_quant_copy_param_t, flags, 68);

#ifdef __cplusplus
}
#endif

#endif
