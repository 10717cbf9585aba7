/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool as programs of the first release use it: every rank writes into the memory of the next one.
 *
 *     ./01_pool_first_release tcp://127.0.0.1:9000 2 &
 *     ./01_pool_first_release tcp://127.0.0.1:9000 2
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
        fprintf(stderr, "%s: %s\n", what, smem_get_last_err_msg());
        exit(1);
    }
}

static void wait_a_little(void) {
    const struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
}

/* The neighbour may not have joined yet. */
static void write_when_there(smem_bm_t pool, const void* source, void* target, uint64_t size) {
    for (;;) {
        const int32_t code = smem_bm_copy(pool, source, target, size, SMEMB_COPY_H2G, 0);
        if (code == SMEM_OK) return;
        must(code == SMEM_NOT_CONNECTED, "copy");
        wait_a_little();
    }
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s <store URL> <world size>\n", argv[0]);
        return 2;
    }
    const uint32_t world = (uint32_t)atoi(argv[2]);
    smem_bm_config_t config;
    must(smem_init(0) == 0, "init");
    must(smem_set_log_level(5) == 0, "log level");
    must(smem_bm_config_init(&config) == 0, "config");
    must(smem_bm_init(argv[1], world, 0, &config) == 0, "bm_init");

    smem_bm_t pool = smem_bm_create(6, world, SMEMB_DATA_OP_SDMA, 0, 2 * MIB, 0);
    must(pool != NULL, "create");
    char* own = NULL;
    must(smem_bm_join(pool, 0, (void**)&own) == 0, "join");
    const uint32_t rank = smem_bm_get_rank_id();
    const uint32_t next = (rank + 1) % world;
    const uint64_t size = smem_bm_get_local_mem_size(pool);

    /* A sentence from everybody to its neighbour, at the start of its memory; then a byte that says it is all there. */
    char words[64];
    const char all_there = 1;
    memset(words, 0, sizeof words);
    snprintf(words, sizeof words, "hello from rank %u", (unsigned)rank);
    char* target = (char*)smem_bm_ptr(pool, (uint16_t)next);
    write_when_there(pool, words, target, sizeof words);
    write_when_there(pool, &all_there, target + sizeof words, 1);
    while (__atomic_load_n(own + sizeof words, __ATOMIC_ACQUIRE) == 0) wait_a_little();
    printf("rank %u with %llu bytes got: %s\n", (unsigned)rank, (unsigned long long)size, own);

    /* Every other of 8 rows of 16 bytes, by the way of 2D. */
    char rows[8 * 16];
    char every_other[4 * 16];
    for (int i = 0; i < 8 * 16; ++i) rows[i] = (char)i;
    must(smem_bm_copy_2d(pool, rows, 32, target + MIB, 16, 16, 4, SMEMB_COPY_H2G, 0) == 0, "copy_2d");
    must(smem_bm_copy(pool, target + MIB, every_other, sizeof every_other, SMEMB_COPY_G2H, 0) == 0, "copy back");
    for (int row = 0; row < 4; ++row) must(memcmp(every_other + row * 16, rows + row * 32, 16) == 0, "rows");

    /* Whoever writes into our memory must have ended: everybody tells its neighbour. One that has read the word may
       have left before we hear that it was written. */
    char done = 1;
    const int32_t told = smem_bm_copy(pool, &done, target + size - 1, 1, SMEMB_COPY_H2G, 0);
    must(told == SMEM_OK || told == SMEM_NOT_CONNECTED || told == SMEM_PARTIAL_FAILED, "last word");
    while (((volatile char*)own)[size - 1] == 0) wait_a_little();
    must(smem_bm_leave(pool, 0) == 0, "leave");
    smem_bm_destroy(pool);
    smem_bm_uninit(0);
    smem_uninit();
    printf("rank %u is done\n", (unsigned)rank);
    return 0;
}
