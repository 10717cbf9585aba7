/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool as programs of the third generation use it: ranks contribute different sizes and grow, and hear of each other.
 * The last rank to come tells all others to end.
 *
 *     ./03_pool_options tcp://127.0.0.1:9000 2 &
 *     ./03_pool_options tcp://127.0.0.1:9000 2
 */
#include <smem/host/smem.h>
#include <smem/host/smem_bm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1ull << 20)

static void must(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "%s: %d %s\n", what, (int)smem_get_last_err_code(), smem_get_last_err_msg());
        exit(1);
    }
}

static void wait_a_little(void) {
    const struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
}

/* On a thread of the library's own. It may call the library. */
static void on_group_event(smem_bm_t pool, uint32_t rank, smem_bm_group_event_t event, void* context) {
    volatile int* joined = (volatile int*)context;
    if (event == SMEM_GROUP_EVENT_JOIN && smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)rank) != NULL) {
        __atomic_fetch_add(joined, 1, __ATOMIC_SEQ_CST);
    }
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s <store URL> <world size>\n", argv[0]);
        return 2;
    }
    const uint32_t world = (uint32_t)atoi(argv[2]);
    smem_bm_config_t config;
    must(smem_set_log_level(5) == 0, "log level");
    must(smem_bm_config_init(&config) == 0, "config");
    must(smem_bm_init(argv[1], world, 0, &config) == 0, "bm_init");
    const uint32_t rank = smem_bm_get_rank_id();

    static int joined = 0;
    smem_bm_create_option_t option;
    memset(&option, 0, sizeof option);
    option.maxDramSize = 8 * MIB;
    option.localDRAMSize = rank == 0 ? 2 * MIB : 4 * MIB;
    option.dataOpType = SMEMB_DATA_OP_SDMA;
    snprintf(option.tag, sizeof option.tag, "host");
    snprintf(option.tagOpInfo, sizeof option.tagOpInfo, "host:HOST_SHM:host,host:HOST_TCP:host");
    smem_bm_t pool = smem_bm_create2(8, &option);
    must(pool != NULL, "create2");
    must(smem_bm_set_group_event_handler(pool, on_group_event, &joined) == 0, "handler");
    must(smem_bm_join(pool, 0) == 0, "join");
    if (rank == 0) must(smem_bm_extend_local_mem(pool, SMEM_MEM_TYPE_HOST, 2 * MIB) == 0, "extend");
    must(smem_bm_get_local_mem_size_by_mem_type(pool, SMEM_MEM_TYPE_HOST) == 4 * MIB, "size");
    while (__atomic_load_n(&joined, __ATOMIC_SEQ_CST) < (int)world - 1) wait_a_little();
    printf("rank %u saw %d others join\n", (unsigned)rank, joined);

    /* Into everybody's grown memory, at a place of our own; then from rank to rank, both of others. */
    for (uint32_t peer = 0; peer < world; ++peer) {
        char* base = (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)peer);
        const uint64_t word = 0x1000u + rank;
        smem_copy_params params = {&word, base + 3 * MIB + rank * 8, sizeof word, NULL};
        int32_t code;
        while ((code = smem_bm_copy(pool, &params, SMEMB_COPY_AUTO, 0)) == SMEM_INVALID_PARAM) wait_a_little();
        must(code == 0, "copy");
    }
    char* own = (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)rank);
    void* here = NULL;
    must(smem_bm_gva_to_va(pool, own, SMEM_MEM_TYPE_LOCAL_HOST, &here) == 0 && here == own, "address");
    for (uint32_t peer = 0; peer < world; ++peer) {
        volatile uint64_t* word = (volatile uint64_t*)(void*)(own + 3 * MIB + peer * 8);
        while (*word != 0x1000u + peer) wait_a_little();
    }
    printf("rank %u heard from all %u\n", (unsigned)rank, (unsigned)world);

    /* Ends when all have said that they are done. One that has heard it from all may have left before we hear that our
       word was written. */
    for (uint32_t peer = 0; peer < world; ++peer) {
        const char done = 1;
        smem_copy_params params = {
            &done, (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)peer) + rank, 1, NULL};
        const int32_t told = smem_bm_copy(pool, &params, SMEMB_COPY_H2G, 0);
        must(told == SMEM_OK || told == SMEM_NOT_CONNECTED || told == SMEM_PARTIAL_FAILED, "last word");
    }
    for (uint32_t peer = 0; peer < world; ++peer) {
        while (((volatile char*)own)[peer] == 0) wait_a_little();
    }
    must(smem_bm_wait(pool) == 0, "wait");
    must(smem_bm_set_group_event_handler(pool, NULL, NULL) == 0, "no handler");
    smem_bm_destroy(pool);
    smem_bm_uninit(0);
    return 0;
}
