/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MemFabric Hybrid from C and C++: what belongs to the process. smem_bm.h, smem_shm.h and smem_trans.h go on.
 *
 *     cc program.c $(pkg-config --cflags --libs mf_smem)
 */
#ifndef MEMFABRIC_SMEM_H
#define MEMFABRIC_SMEM_H

#include "smem_def.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- on and off -------------------------------------------------------------------------------------------------- */

/*
 * Turns the library on. Optional: whatever is called first does it. The control plane is Python, which runs inside this
 * process: the one that is here already, or the one of the environment in which this library is installed. If there is
 * none, this and every other call fails and says what was looked for.
 */
int32_t smem_init(uint32_t flags);

/* Turns everything off: objects, memberships, transfers, stores. All handles are closed. Idempotent. */
void smem_uninit(void);

/* SMEM_ABI_VERSION of the library. */
uint32_t smem_get_abi_version(void);

/* ---- what went wrong --------------------------------------------------------------------------------------------- */

/*
 * The sentence of this thread's last failure; "" if there was none. Success does not clear it. The text stays as it is
 * until this thread calls the library again.
 */
const char* smem_get_last_err_msg(void);

/* The same, and forgets it. */
const char* smem_get_and_clear_last_err_msg(void);

/* The code of this thread's last failure; 0 if there was none, or it was cleared. */
int32_t smem_get_last_err_code(void);

/* ---- the log ----------------------------------------------------------------------------------------------------- */

/* 0 debug, 1 info, 2 warn (the default), 3 error, 4 trace, 5 fatal; SMEM_INVALID_PARAM for any other number. */
int32_t smem_set_log_level(int level);

/* `func` gets every line instead of standard error, on whatever thread has something to say. NULL: as before. */
int32_t smem_set_extern_logger(void (*func)(int level, const char* msg));

/* ---- the store --------------------------------------------------------------------------------------------------- */

/*
 * Runs a store in this process, through which the members of a cluster find each other, until smem_uninit() or
 * smem_destroy_config_store(). "tcp://host:port", "tcp://[v6]:port". The same again: 0. SMEM_RES_IN_USE if another
 * process has the address. `flags` is ignored and may be left out.
 */
int32_t smem_create_config_store(const char* storeUrl, uint64_t flags);

/* Ends the store that smem_create_config_store() began; nothing happens if there is none. */
void smem_destroy_config_store(const char* storeUrl);

/*
 * What the stores of this process know, as JSON: [{"url": …, "clusters": {…}, …}, …]; docs/interface.md, section 4,
 * lists all of it. `*size` is the room in `status` before the call and the size of the text with its NUL after it.
 * SMEM_BUFFER_TOO_SMALL if it does not fit (`status` may be NULL to ask for the size, which changes as members come and
 * time goes by: bring a little more room, or ask again); SMEM_NOT_EXIST and "[]" if this process runs no store;
 * SMEM_INVALID_PARAM if `size` is NULL.
 */
int32_t smem_config_store_get_cluster_status(char* status, size_t* size);

/*
 * TLS between members and the store. `tls_info`: "tlsCaPath: …; tlsCaFile: …; tlsCert: …" and more, see docs/store.md.
 * Before anything is initialised. With `enable` false nothing else is looked at.
 */
int32_t smem_set_conf_store_tls(bool enable, const char* tls_info, const uint32_t tls_info_len);

/* The private key (PEM text) for it, and its passphrase, which `h` decrypts first if it is not NULL. */
int32_t smem_set_config_store_tls_key(const char* tls_pk, const uint32_t tls_pk_len, const char* tls_pk_pw,
                                      const uint32_t tls_pk_pw_len, const smem_decrypt_handler h);

/* The first release's way to say both. */
int32_t smem_set_ssl_option(const smem_tls_option* tlsOption);

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/*
 * An ordered queue of copies and transfers that run in the background, one after the other. Its handle is what
 * smem_copy_params.stream and the submit functions of smem_trans.h take, and the same as a Stream's in Python.
 */
int32_t smem_stream_create(void** stream);

/* Returns when everything that was queued so far has ended: 0, or the code of the first failure since the last wait. */
int32_t smem_stream_wait(void* stream);

/* Finishes what is queued and ends it. Later use of the handle: SMEM_INVALID_PARAM. */
int32_t smem_stream_destroy(void* stream);

#ifdef __cplusplus
}

extern "C++" { /* also for programs that include this inside of extern "C" */
inline int32_t smem_create_config_store(const char* storeUrl) {
    return smem_create_config_store(storeUrl, uint64_t{0});
}
}
#else
static inline int32_t smem_create_config_store_1(const char* storeUrl) { return smem_create_config_store(storeUrl, 0); }
#define smem_create_config_store(...) \
    SMEM_CHOOSE_2(__VA_ARGS__, smem_create_config_store, smem_create_config_store_1, 0)(__VA_ARGS__)
#endif

#endif
