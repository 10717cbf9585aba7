/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfer: one-sided reads and writes into the memory of another process, which does nothing for them.
 *
 *     smem_trans_config_t config;
 *     smem_trans_config_init(&config);
 *     smem_trans_init(&config);
 *     smem_trans_t engine = smem_trans_create("tcp://127.0.0.1:9000", "127.0.0.1:5001", &config);
 *     smem_trans_register_mem(engine, buffer, size, 0);                          others may touch it now
 *     smem_trans_write(engine, buffer, "127.0.0.1:5002", address_there, size);   and we touch theirs
 *
 * Who knows a unique id ("ip:port") and an address in memory that is registered there needs nothing else, whether the
 * peer is a C, C++ or Python program. The functions that move bytes never touch Python; their last argument, `flags`,
 * is not looked at and may be left out.
 */
#ifndef MEMFABRIC_SMEM_TRANS_H
#define MEMFABRIC_SMEM_TRANS_H

#include "smem_trans_def.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- engines ----------------------------------------------------------------------------------------------------- */

/* Fills in the defaults. */
int32_t smem_trans_config_init(smem_trans_config_t* config);

/* Turns Transfer on in this process. Again: 0 and nothing happens. */
int32_t smem_trans_init(const smem_trans_config_t* config);

/* Destroys all engines of the C interface in this process. Idempotent. */
void smem_trans_uninit(uint32_t flags);

/*
 * Listens at `uniqueId` ("ip:port"; without a port, or with 0, at a free one) and serves peers. A name without a colon
 * is published in the store at `storeUrl`; an address needs no store, and `storeUrl` may be NULL then.
 */
smem_trans_t smem_trans_create(const char* storeUrl, const char* uniqueId, const smem_trans_config_t* config);

/* Ends it: peers' transfers fail from then on, memory of smem_trans_malloc is gone. */
void smem_trans_destroy(smem_trans_t handle, uint32_t flags);

/* `callback` runs when a peer ends or dies; NULL stops it. `userData` is handed to it. */
int32_t smem_trans_set_peer_down_callback(smem_trans_t handle, smem_trans_peer_down_callback_t callback,
                                          void* userData);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Peers may read and write it from now on. Any start and size; ranges may overlap. */
int32_t smem_trans_register_mem(smem_trans_t handle, void* address, size_t capacity, uint32_t flags);

/* Many at once: all or none. */
int32_t smem_trans_batch_register_mem(smem_trans_t handle, void* addresses[], size_t capacities[], uint32_t count,
                                      uint32_t flags);

/* No peer touches it any more when this returns 0. */
int32_t smem_trans_deregister_mem(smem_trans_t handle, void* address);

/* Memory that peers of this host map: the fastest kind. It is registered. */
void* smem_trans_malloc(smem_trans_t handle, size_t capacity);
int32_t smem_trans_free(smem_trans_t handle, void* address);

/* ---- moving bytes ------------------------------------------------------------------------------------------------ */

/*
 * The bytes are in place when these return 0. SMEM_INVALID_PARAM the peer's range is not all registered there now (and
 * nothing is moved), a size of 0 or a bad buffer; SMEM_NOT_CONNECTED the peer cannot be reached or has died;
 * SMEM_TIMEOUT it does not answer; SMEM_PARTIAL_FAILED it died when a part was moved.
 */
int32_t smem_trans_read(smem_trans_t handle, void* localAddr, const char* remoteUniqueId, const void* remoteAddr,
                        size_t dataSize, uint32_t flags);
int32_t smem_trans_write(smem_trans_t handle, const void* localAddr, const char* remoteUniqueId, void* remoteAddr,
                         size_t dataSize, uint32_t flags);

/* 1 to 1048576 independent pieces; everything is checked before the first byte moves. */
int32_t smem_trans_batch_read(smem_trans_t handle, void* localAddrs[], const char* remoteUniqueId,
                              const void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, uint32_t flags);
int32_t smem_trans_batch_write(smem_trans_t handle, const void* localAddrs[], const char* remoteUniqueId,
                               void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, uint32_t flags);

/* The same on a stream (smem_stream_create), in order with its other work; smem_stream_wait has the outcome. */
int32_t smem_trans_read_submit(smem_trans_t handle, void* localAddr, const char* remoteUniqueId, const void* remoteAddr,
                               size_t dataSize, void* stream, uint32_t flags);
int32_t smem_trans_write_submit(smem_trans_t handle, const void* localAddr, const char* remoteUniqueId,
                                void* remoteAddr, size_t dataSize, void* stream, uint32_t flags);
int32_t smem_trans_batch_read_submit(smem_trans_t handle, void* localAddrs[], const char* remoteUniqueId,
                                     const void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, void* stream,
                                     uint32_t flags);
int32_t smem_trans_batch_write_submit(smem_trans_t handle, const void* localAddrs[], const char* remoteUniqueId,
                                      void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, void* stream,
                                      uint32_t flags);

/* Writes bfloat16 or float16 numbers as int8: saturate(round(x * scale + offset)). */
int32_t smem_trans_batch_quant_write(smem_trans_t handle, smem_trans_quant_copy_param_t* params);

#ifdef __cplusplus
}
#endif

/* ---- the same calls without flags -------------------------------------------------------------------------------- */

#ifdef __cplusplus
extern "C++" { /* also for programs that include this inside of extern "C" */
inline int32_t smem_trans_read(smem_trans_t handle, void* localAddr, const char* remoteUniqueId, const void* remoteAddr,
                               size_t dataSize) {
    return smem_trans_read(handle, localAddr, remoteUniqueId, remoteAddr, dataSize, uint32_t{0});
}

inline int32_t smem_trans_write(smem_trans_t handle, const void* localAddr, const char* remoteUniqueId,
                                void* remoteAddr, size_t dataSize) {
    return smem_trans_write(handle, localAddr, remoteUniqueId, remoteAddr, dataSize, uint32_t{0});
}

inline int32_t smem_trans_batch_read(smem_trans_t handle, void* localAddrs[], const char* remoteUniqueId,
                                     const void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize) {
    return smem_trans_batch_read(handle, localAddrs, remoteUniqueId, remoteAddrs, dataSizes, batchSize, uint32_t{0});
}

inline int32_t smem_trans_batch_write(smem_trans_t handle, const void* localAddrs[], const char* remoteUniqueId,
                                      void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize) {
    return smem_trans_batch_write(handle, localAddrs, remoteUniqueId, remoteAddrs, dataSizes, batchSize, uint32_t{0});
}

inline int32_t smem_trans_read_submit(smem_trans_t handle, void* localAddr, const char* remoteUniqueId,
                                      const void* remoteAddr, size_t dataSize, void* stream) {
    return smem_trans_read_submit(handle, localAddr, remoteUniqueId, remoteAddr, dataSize, stream, uint32_t{0});
}

inline int32_t smem_trans_write_submit(smem_trans_t handle, const void* localAddr, const char* remoteUniqueId,
                                       void* remoteAddr, size_t dataSize, void* stream) {
    return smem_trans_write_submit(handle, localAddr, remoteUniqueId, remoteAddr, dataSize, stream, uint32_t{0});
}

inline int32_t smem_trans_batch_read_submit(smem_trans_t handle, void* localAddrs[], const char* remoteUniqueId,
                                            const void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize,
                                            void* stream) {
    return smem_trans_batch_read_submit(handle, localAddrs, remoteUniqueId, remoteAddrs, dataSizes, batchSize, stream,
                                        uint32_t{0});
}

inline int32_t smem_trans_batch_write_submit(smem_trans_t handle, const void* localAddrs[], const char* remoteUniqueId,
                                             void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize,
                                             void* stream) {
    return smem_trans_batch_write_submit(handle, localAddrs, remoteUniqueId, remoteAddrs, dataSizes, batchSize, stream,
                                         uint32_t{0});
}
}
#else
/* In parentheses a name is the function, not the macro. */
#define SMEM_TRANS_AS_GIVEN(function, ...) (function)(__VA_ARGS__)
#define SMEM_TRANS_WITH_FLAGS(function, ...) (function)(__VA_ARGS__, 0u)
#define SMEM_TRANS_GIVEN_FROM_9 SMEM_MANY(SMEM_TRANS_AS_GIVEN)
#define SMEM_TRANS_GIVEN_TO_4 SMEM_TRANS_AS_GIVEN, SMEM_TRANS_AS_GIVEN, SMEM_TRANS_AS_GIVEN, SMEM_TRANS_AS_GIVEN
/* For calls that have 5, 6 or 7 arguments without their flags. */
#define SMEM_TRANS_OF_5(...)                                                                       \
    SMEM_CHOOSE_24(__VA_ARGS__, SMEM_TRANS_GIVEN_FROM_9, SMEM_TRANS_AS_GIVEN, SMEM_TRANS_AS_GIVEN, \
                   SMEM_TRANS_AS_GIVEN, SMEM_TRANS_WITH_FLAGS, SMEM_TRANS_GIVEN_TO_4, 0)
#define SMEM_TRANS_OF_6(...)                                                                       \
    SMEM_CHOOSE_24(__VA_ARGS__, SMEM_TRANS_GIVEN_FROM_9, SMEM_TRANS_AS_GIVEN, SMEM_TRANS_AS_GIVEN, \
                   SMEM_TRANS_WITH_FLAGS, SMEM_TRANS_AS_GIVEN, SMEM_TRANS_GIVEN_TO_4, 0)
#define SMEM_TRANS_OF_7(...)                                                                         \
    SMEM_CHOOSE_24(__VA_ARGS__, SMEM_TRANS_GIVEN_FROM_9, SMEM_TRANS_AS_GIVEN, SMEM_TRANS_WITH_FLAGS, \
                   SMEM_TRANS_AS_GIVEN, SMEM_TRANS_AS_GIVEN, SMEM_TRANS_GIVEN_TO_4, 0)
#define smem_trans_read(...) SMEM_TRANS_OF_5(__VA_ARGS__)(smem_trans_read, __VA_ARGS__)
#define smem_trans_write(...) SMEM_TRANS_OF_5(__VA_ARGS__)(smem_trans_write, __VA_ARGS__)
#define smem_trans_batch_read(...) SMEM_TRANS_OF_6(__VA_ARGS__)(smem_trans_batch_read, __VA_ARGS__)
#define smem_trans_batch_write(...) SMEM_TRANS_OF_6(__VA_ARGS__)(smem_trans_batch_write, __VA_ARGS__)
#define smem_trans_read_submit(...) SMEM_TRANS_OF_6(__VA_ARGS__)(smem_trans_read_submit, __VA_ARGS__)
#define smem_trans_write_submit(...) SMEM_TRANS_OF_6(__VA_ARGS__)(smem_trans_write_submit, __VA_ARGS__)
#define smem_trans_batch_read_submit(...) SMEM_TRANS_OF_7(__VA_ARGS__)(smem_trans_batch_read_submit, __VA_ARGS__)
#define smem_trans_batch_write_submit(...) SMEM_TRANS_OF_7(__VA_ARGS__)(smem_trans_batch_write_submit, __VA_ARGS__)
#endif

#endif
