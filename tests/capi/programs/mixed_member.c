/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that obeys its standard input, one call in a line, and says what came of it: so that tests can lead C and
 * Python members of one world through the same steps.
 */
#include <inttypes.h>
#include <smem/host/smem_bm.h>
#include <smem/host/smem_shm.h>
#include <smem/host/smem_trans.h>
#include <unistd.h>

#include "check.h"

enum { ROOM = 1 << 20 };
static char buffer[ROOM];
static char line[4096];
static smem_bm_t pool;
static smem_shm_t heap;
static smem_trans_t engine;

/* The next word of the line. */
static const char* word(void) {
    const char* found = strtok(NULL, " \n");
    return found == NULL ? "" : found;
}

static uint64_t number(void) { return strtoull(word(), NULL, 0); }

static void answer(int64_t value) {
    printf("%" PRId64 " %s\n", value, value < 0 ? smem_get_and_clear_last_err_msg() : "");
    fflush(stdout);
}

static int64_t enter_pool(const char* url, uint32_t world) {
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    config.initTimeout = config.createTimeout = config.controlOperationTimeout = 20;
    config.startConfigStoreServer = false;
    const int32_t code = smem_bm_init(url, world, 0, &config);
    return code != 0 ? code : (int64_t)smem_bm_get_rank_id();
}

static int64_t enter_heap(const char* url, uint32_t world, uint32_t rank) {
    smem_shm_config_t config;
    CHECK(smem_shm_config_init(&config) == 0);
    config.startConfigStoreServer = false;
    config.controlOperationTimeout = 20;
    const int32_t code = smem_shm_init(url, world, rank, 0, &config);
    if (code != 0) return code;
    void* gva = NULL;
    heap = smem_shm_create(0, world, rank, 2u << 20, SMEMS_DATA_OP_MTE, 0, &gva);
    return heap == NULL ? smem_get_last_err_code() : (int64_t)(uintptr_t)gva;
}

static int64_t open_engine(const char* session) {
    smem_trans_config_t config;
    CHECK(smem_trans_config_init(&config) == 0 && smem_trans_init(&config) == 0);
    engine = smem_trans_create(NULL, session, &config);
    if (engine == NULL) return smem_get_last_err_code();
    return smem_trans_register_mem(engine, buffer, ROOM, 0) == 0 ? (int64_t)(uintptr_t)buffer : -1;
}

static int64_t gather(uint32_t world, uint32_t value) {
    uint32_t all[64] = {0};
    const int32_t code = smem_shm_control_allgather(heap, (const char*)&value, sizeof value, (char*)all,
                                                    (uint32_t)(world * sizeof value));
    if (code != 0) return code;
    int64_t sum = 0;
    for (uint32_t i = 0; i < world; ++i) sum += (int64_t)all[i] * (i + 1);
    return sum;
}

static int64_t obey(const char* what) {
    if (strcmp(what, "enter_pool") == 0) {
        const char* url = word();
        return enter_pool(url, (uint32_t)number());
    }
    if (strcmp(what, "create") == 0) {
        pool = smem_bm_create((uint32_t)number(), 0, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
        return pool == NULL ? smem_get_last_err_code() : 0;
    }
    if (strcmp(what, "join") == 0) return smem_bm_join(pool, 0);
    if (strcmp(what, "leave") == 0) return smem_bm_leave(pool, 0);
    if (strcmp(what, "ptr") == 0) {
        return (int64_t)(uintptr_t)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)number());
    }
    if (strcmp(what, "put") == 0) { /* address value size */
        char* target = (char*)(uintptr_t)number();
        const int value = (int)number();
        const size_t size = (size_t)number();
        memset(buffer, value, size);
        return smem_bm_copy(pool, buffer, target, size, SMEMB_COPY_H2G, 0);
    }
    if (strcmp(what, "get") == 0) { /* address size: the byte that all of them are */
        const char* source = (const char*)(uintptr_t)number();
        const size_t size = (size_t)number();
        const int32_t code = smem_bm_copy(pool, source, buffer, size, SMEMB_COPY_G2H, 0);
        for (size_t i = 1; code == 0 && i < size; ++i) CHECK(buffer[i] == buffer[0]);
        return code == 0 ? buffer[0] : code;
    }
    if (strcmp(what, "enter_heap") == 0) {
        const char* url = word();
        const uint32_t world = (uint32_t)number();
        return enter_heap(url, world, (uint32_t)number());
    }
    if (strcmp(what, "barrier") == 0) return smem_shm_control_barrier(heap);
    if (strcmp(what, "gather") == 0) {
        const uint32_t world = (uint32_t)number();
        return gather(world, (uint32_t)number());
    }
    if (strcmp(what, "store") == 0) { /* address value: by a plain store */
        volatile char* target = (volatile char*)(uintptr_t)number();
        *target = (char)number();
        return 0;
    }
    if (strcmp(what, "load") == 0) return *(volatile char*)(uintptr_t)number();
    if (strcmp(what, "destroy_heap") == 0) return smem_shm_destroy(heap, 0);
    if (strcmp(what, "open_engine") == 0) return open_engine(word());
    if (strcmp(what, "write") == 0) { /* session address value size */
        const char* session = word();
        char* target = (char*)(uintptr_t)number();
        const int value = (int)number();
        const size_t size = (size_t)number();
        memset(buffer, value, size);
        return smem_trans_write(engine, buffer, session, target, size);
    }
    if (strcmp(what, "read") == 0) { /* session address size */
        const char* session = word();
        const char* source = (const char*)(uintptr_t)number();
        const size_t size = (size_t)number();
        const int32_t code = smem_trans_read(engine, buffer, session, source, size);
        return code == 0 ? buffer[0] : code;
    }
    if (strcmp(what, "uninit") == 0) {
        smem_uninit();
        return 0;
    }
    CHECK(!"a call that this program knows");
    return -1;
}

int main(void) {
    CHECK(smem_set_log_level(5) == 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        const char* what = strtok(line, " \n");
        if (what != NULL) answer(obey(what));
    }
    return 0;
}
