/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Share Memory from inside compute kernels, in plain C11 or C++17.
 *
 * Everything is inline: a kernel needs this header and nothing else, neither a library nor an initialisation. What it
 * reads is a table that memfabric_hybrid keeps at a fixed address of every process that has a Share Memory object, so
 * kernels run in such a process only (a shared library loaded with ctypes, a thread of the program).
 *
 * Addresses are global: the memory of rank r of object id begins at smem_shm_get_gva(id) + r * symmetric size. Of ranks
 * on this host it is ordinary memory; of ranks on other hosts (smem_shm_is_far) it can be copied from and to with the
 * functions below, and nothing else: loads, stores and atomics there crash. The object's id is 0 unless given (C:
 * always give it).
 *
 * Three names are the host interface's as well. C++ tells them apart; in a C file that also includes
 * ../host/smem_shm.h they are the host's.
 */
#ifndef MEMFABRIC_SMEM_SHM_AICORE_BASE_API_H
#define MEMFABRIC_SMEM_SHM_AICORE_BASE_API_H

#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/select.h>

#ifdef __cplusplus
extern "C++" { /* also for programs that include this inside of extern "C" */
#define SMEM_SHM_DEFAULT(value) = value
#else
#include <stdbool.h>
#define SMEM_SHM_DEFAULT(value)
#endif

/* Programs written for accelerators mark their functions and pointers with these. */
#ifndef SMEM_SHM_INLINE_AICORE
#define SMEM_SHM_INLINE_AICORE static inline
#endif
#ifndef __gm__
#define __gm__
#endif
#ifndef __ubuf__
#define __ubuf__
#endif

#define SMEM_SHM_MAX_OBJECTS 64u
#define SMEM_SHM_NO_RANK UINT32_MAX
#define SMEM_SHM_MAX_RANKS 1024u
#define SMEM_SHM_TABLE_ADDRESS 0x1000c0000000ull
#define SMEM_SHM_ROUTES_ADDRESS (SMEM_SHM_TABLE_ADDRESS + SMEM_SHM_MAX_OBJECTS * (64u + 65536u))

typedef struct {
    uint32_t present; /* 0: this process has no such object */
    uint32_t rank;
    uint32_t rank_size;
    uint32_t context_bytes;
    uint64_t gva;
    uint64_t symmetric_bytes;
    uint64_t context_address;
    uint64_t departures_address; /* of two words, */
    uint64_t declared_address;   /* one of which is not 0 once a rank of the object is gone */
    uint64_t reserved;
} smem_shm_kernel_entry;

typedef struct {
    uint32_t far_objects; /* 0: all memory of all objects is mapped here */
    uint32_t reserved;
    int32_t (*copy)(void* target, const void* source, uint64_t size_bytes);
    uint8_t is_far[SMEM_SHM_MAX_OBJECTS][SMEM_SHM_MAX_RANKS];
} smem_shm_device_routes;

SMEM_SHM_INLINE_AICORE const smem_shm_device_routes* smem_shm_routes(void) {
    return (const smem_shm_device_routes*)(uintptr_t)SMEM_SHM_ROUTES_ADDRESS;
}

/* NULL if this process has no object of that id. */
SMEM_SHM_INLINE_AICORE const smem_shm_kernel_entry* smem_shm_kernel_entry_of(uint32_t id) {
    const smem_shm_kernel_entry* entry = (const smem_shm_kernel_entry*)(uintptr_t)SMEM_SHM_TABLE_ADDRESS + id;
    if (id >= SMEM_SHM_MAX_OBJECTS || __atomic_load_n(&entry->present, __ATOMIC_ACQUIRE) == 0u) {
        return NULL;
    }
    return entry;
}

/* ---- who and where -------------------------------------------------------------------------------------------- */

/* The names that ../host/smem_shm.h takes back. */
#ifndef __cplusplus
#define smem_shm_get_global_rank smem_shm_get_global_rank_of_kernel
#define smem_shm_get_global_rank_size smem_shm_get_global_rank_size_of_kernel
#define smem_shm_get_symmetric_size smem_shm_get_symmetric_size_of_kernel
#endif

/* UINT32_MAX without such an object. */
SMEM_SHM_INLINE_AICORE uint32_t smem_shm_get_global_rank(uint32_t id SMEM_SHM_DEFAULT(0)) {
    const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
    return entry == NULL ? SMEM_SHM_NO_RANK : entry->rank;
}

/* The following are 0 without such an object. */
SMEM_SHM_INLINE_AICORE uint32_t smem_shm_get_global_rank_size(uint32_t id SMEM_SHM_DEFAULT(0)) {
    const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
    return entry == NULL ? 0u : entry->rank_size;
}

SMEM_SHM_INLINE_AICORE uint64_t smem_shm_get_symmetric_size(uint32_t id SMEM_SHM_DEFAULT(0)) {
    const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
    return entry == NULL ? 0u : entry->symmetric_bytes;
}

#ifdef __cplusplus
/* Ids of other types: beside the host's functions of these names, which take handles, 0 could be either. */
#define SMEM_SHM_ID_OF(type)                                                 \
    SMEM_SHM_INLINE_AICORE uint32_t smem_shm_get_global_rank(type id) {      \
        return smem_shm_get_global_rank((uint32_t)id);                       \
    }                                                                        \
    SMEM_SHM_INLINE_AICORE uint32_t smem_shm_get_global_rank_size(type id) { \
        return smem_shm_get_global_rank_size((uint32_t)id);                  \
    }                                                                        \
    SMEM_SHM_INLINE_AICORE uint64_t smem_shm_get_symmetric_size(type id) {   \
        return smem_shm_get_symmetric_size((uint32_t)id);                    \
    }
SMEM_SHM_ID_OF(int)
SMEM_SHM_ID_OF(long)
SMEM_SHM_ID_OF(long long)
SMEM_SHM_ID_OF(unsigned long)
SMEM_SHM_ID_OF(unsigned long long)
#undef SMEM_SHM_ID_OF
#endif

#if !defined(__cplusplus) && defined(MEMFABRIC_SMEM_SHM_H)
#undef smem_shm_get_global_rank
#undef smem_shm_get_global_rank_size
#undef smem_shm_get_symmetric_size
#endif

SMEM_SHM_INLINE_AICORE uint64_t smem_shm_get_gva(uint32_t id SMEM_SHM_DEFAULT(0)) {
    const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
    return entry == NULL ? 0u : entry->gva;
}

/* What ShareMemory.set_context was given on this rank; NULL and 0 before that. */
SMEM_SHM_INLINE_AICORE uint32_t smem_shm_get_extra_context_size(uint32_t id SMEM_SHM_DEFAULT(0)) {
    const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
    return entry == NULL ? 0u : __atomic_load_n(&entry->context_bytes, __ATOMIC_ACQUIRE);
}

SMEM_SHM_INLINE_AICORE __gm__ void* smem_shm_get_extra_context_addr(uint32_t id SMEM_SHM_DEFAULT(0)) {
    return smem_shm_get_extra_context_size(id) == 0u ? NULL
                                                     : (void*)(uintptr_t)smem_shm_kernel_entry_of(id)->context_address;
}

/* The address of `offset` in the memory of a rank; NULL if the object or the place does not exist. */
SMEM_SHM_INLINE_AICORE __gm__ void* smem_shm_ptr(uint32_t rank, uint64_t offset, uint32_t id SMEM_SHM_DEFAULT(0)) {
    const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
    if (entry == NULL || rank >= entry->rank_size || offset >= entry->symmetric_bytes) {
        return NULL;
    }
    return (void*)(uintptr_t)(entry->gva + rank * entry->symmetric_bytes + offset);
}

/* True if that rank is on another host: its memory can be copied, not addressed. */
SMEM_SHM_INLINE_AICORE bool smem_shm_is_far(uint32_t rank, uint32_t id SMEM_SHM_DEFAULT(0)) {
    return smem_shm_kernel_entry_of(id) != NULL && rank < SMEM_SHM_MAX_RANKS && smem_shm_routes()->is_far[id][rank];
}

SMEM_SHM_INLINE_AICORE bool smem_shm_address_is_far(const void* place) {
    const uint64_t address = (uint64_t)(uintptr_t)place;
    for (uint32_t id = 0; id < SMEM_SHM_MAX_OBJECTS; ++id) {
        const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
        if (entry != NULL && address - entry->gva < entry->rank_size * entry->symmetric_bytes) {
            return smem_shm_is_far((uint32_t)((address - entry->gva) / entry->symmetric_bytes), id);
        }
    }
    return false;
}

/* ---- moving bytes ----------------------------------------------------------------------------------------------- */

/* Everything this thread stored before is seen by whoever sees what it stores after. */
SMEM_SHM_INLINE_AICORE void smem_shm_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* All puts and gets this thread has posted are done. They are done when they return; this also orders them. */
SMEM_SHM_INLINE_AICORE void smem_shm_quiet(void) { smem_shm_fence(); }

/*
 * Copies between any two places, of whichever host, and returns when the bytes are there: 0, or the code of a failure
 * (-2014: a rank is gone; -2004: nothing moved for the operation time-out; the log says more). Only copies from and to
 * other hosts can fail. The functions that return nothing, below, leave it at the log.
 */
SMEM_SHM_INLINE_AICORE int32_t smem_shm_copy(void* target, const void* source, uint64_t size) {
    if (__atomic_load_n(&smem_shm_routes()->far_objects, __ATOMIC_ACQUIRE) != 0u &&
        (smem_shm_address_is_far(target) || smem_shm_address_is_far(source))) {
        return smem_shm_routes()->copy(target, source, size);
    }
    memcpy(target, source, size);
    return 0;
}

#ifdef __cplusplus

/* Between a kernel's own buffer and global memory; `size` in bytes. `enableL2` is accepted. */
template <typename T>
SMEM_SHM_INLINE_AICORE void smem_shm_copy_ub2gm(__gm__ T* dstGva, const __ubuf__ T* srcUb, uint32_t size,
                                                bool enableL2 = true) {
    (void)enableL2;
    (void)smem_shm_copy((void*)dstGva, (const void*)srcUb, size);
}

template <typename T>
SMEM_SHM_INLINE_AICORE void smem_shm_copy_gm2ub(__ubuf__ T* dstUb, const __gm__ T* srcGva, uint32_t size,
                                                bool enableL2 = true) {
    (void)enableL2;
    (void)smem_shm_copy((void*)dstUb, (const void*)srcGva, size);
}

/* Put to and get from a rank, by global addresses. `qpIdx` and whatever work buffers programs for accelerators pass
 * after `messageLen` are accepted. */
template <typename T, typename... Buffers>
SMEM_SHM_INLINE_AICORE void smem_shm_roce_write(const __gm__ T* srcDmaAddr, __gm__ T* destDmaAddr, uint32_t destRankId,
                                                uint32_t qpIdx, uint64_t messageLen, const Buffers&...) {
    (void)destRankId;
    (void)qpIdx;
    (void)smem_shm_copy((void*)destDmaAddr, (const void*)srcDmaAddr, messageLen);
}

template <typename T, typename... Buffers>
SMEM_SHM_INLINE_AICORE void smem_shm_roce_read(const __gm__ T* srcDmaAddr, __gm__ T* destDmaAddr, uint32_t srcRankId,
                                               uint32_t qpIdx, uint64_t messageLen, const Buffers&...) {
    (void)srcRankId;
    (void)qpIdx;
    (void)smem_shm_copy((void*)destDmaAddr, (const void*)srcDmaAddr, messageLen);
}

template <typename... Arguments>
SMEM_SHM_INLINE_AICORE void smem_shm_roce_quiet(const Arguments&...) {
    smem_shm_quiet();
}

#else

SMEM_SHM_INLINE_AICORE void smem_shm_copy_ub2gm(void* dstGva, const void* srcUb, uint32_t size) {
    (void)smem_shm_copy(dstGva, srcUb, size);
}

SMEM_SHM_INLINE_AICORE void smem_shm_copy_gm2ub(void* dstUb, const void* srcGva, uint32_t size) {
    (void)smem_shm_copy(dstUb, srcGva, size);
}

SMEM_SHM_INLINE_AICORE void smem_shm_roce_write(const void* srcDmaAddr, void* destDmaAddr, uint32_t destRankId,
                                                uint32_t qpIdx, uint64_t messageLen) {
    (void)destRankId;
    (void)qpIdx;
    (void)smem_shm_copy(destDmaAddr, srcDmaAddr, messageLen);
}

SMEM_SHM_INLINE_AICORE void smem_shm_roce_read(const void* srcDmaAddr, void* destDmaAddr, uint32_t srcRankId,
                                               uint32_t qpIdx, uint64_t messageLen) {
    (void)srcRankId;
    (void)qpIdx;
    (void)smem_shm_copy(destDmaAddr, srcDmaAddr, messageLen);
}

SMEM_SHM_INLINE_AICORE void smem_shm_roce_quiet(void) { smem_shm_quiet(); }

#endif

/* ---- signalling ------------------------------------------------------------------------------------------------- */

typedef enum {
    SMEM_SHM_CMP_EQ = 0,
    SMEM_SHM_CMP_NE = 1,
    SMEM_SHM_CMP_GT = 2,
    SMEM_SHM_CMP_GE = 3,
    SMEM_SHM_CMP_LT = 4,
    SMEM_SHM_CMP_LE = 5
} smem_shm_compare;

/* True if the word lies in an object that has lost a rank: what it waits for may never come. */
SMEM_SHM_INLINE_AICORE bool smem_shm_rank_is_gone(const void* word) {
    const uint64_t address = (uint64_t)(uintptr_t)word;
    for (uint32_t id = 0; id < SMEM_SHM_MAX_OBJECTS; ++id) {
        const smem_shm_kernel_entry* entry = smem_shm_kernel_entry_of(id);
        if (entry != NULL && address - entry->gva < entry->rank_size * entry->symmetric_bytes) {
            return __atomic_load_n((const uint32_t*)(uintptr_t)entry->departures_address, __ATOMIC_ACQUIRE) != 0u ||
                   __atomic_load_n((const uint32_t*)(uintptr_t)entry->declared_address, __ATOMIC_ACQUIRE) != 0u;
        }
    }
    return false;
}

#define SMEM_SHM_LOOKS_BEFORE_SLEEP 264u

/* Between two looks. Beside a busy thread every yield costs a time slice, so there are few. */
SMEM_SHM_INLINE_AICORE void smem_shm_let_others_run(uint64_t looks) {
    if (looks >= SMEM_SHM_LOOKS_BEFORE_SLEEP) {
        struct timeval pause = {0, 50};
        select(0, 0, 0, 0, &pause);
    } else if (looks >= 200u) {
        sched_yield();
    }
}

/*
 * On aligned words of anybody's memory. `add` and `compare_swap` return the value before. `wait_until` looks until
 * `value-there compare value` holds, `most` times at most; false = it never held, or it does not hold and a rank of the
 * object in which the word lies is gone. After some microseconds it lets others run, then it sleeps 50 microseconds
 * between looks.
 */
#define SMEM_SHM_WORD_FUNCTIONS(bits)                                                                                 \
    SMEM_SHM_INLINE_AICORE int##bits##_t smem_shm_atomic_load_i##bits(const int##bits##_t* word) {                    \
        return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                                               \
    }                                                                                                                 \
    SMEM_SHM_INLINE_AICORE void smem_shm_atomic_store_i##bits(int##bits##_t* word, int##bits##_t value) {             \
        __atomic_store_n(word, value, __ATOMIC_SEQ_CST);                                                              \
    }                                                                                                                 \
    SMEM_SHM_INLINE_AICORE int##bits##_t smem_shm_atomic_add_i##bits(int##bits##_t* word, int##bits##_t value) {      \
        return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);                                                     \
    }                                                                                                                 \
    SMEM_SHM_INLINE_AICORE int##bits##_t smem_shm_atomic_compare_swap_i##bits(                                        \
        int##bits##_t* word, int##bits##_t expected, int##bits##_t value) {                                           \
        __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                   \
        return expected;                                                                                              \
    }                                                                                                                 \
    SMEM_SHM_INLINE_AICORE bool smem_shm_wait_until_i##bits(const int##bits##_t* word, smem_shm_compare compare,      \
                                                            int##bits##_t value, uint64_t most) {                     \
        bool gone = false;                                                                                            \
        for (uint64_t looks = 0; looks < most; ++looks) {                                                             \
            const int##bits##_t now = __atomic_load_n(word, __ATOMIC_SEQ_CST);                                        \
            const bool holds[6] = {now == value, now != value, now > value, now >= value, now < value, now <= value}; \
            if (holds[compare] || gone) {                                                                             \
                return holds[compare];                                                                                \
            }                                                                                                         \
            gone = looks >= SMEM_SHM_LOOKS_BEFORE_SLEEP && smem_shm_rank_is_gone(word); /* one more look, then */     \
            smem_shm_let_others_run(looks);                                                                           \
        }                                                                                                             \
        return false;                                                                                                 \
    }

SMEM_SHM_WORD_FUNCTIONS(32)
SMEM_SHM_WORD_FUNCTIONS(64)

#undef SMEM_SHM_WORD_FUNCTIONS
#undef SMEM_SHM_DEFAULT

#ifdef __cplusplus
}
#endif

#endif
