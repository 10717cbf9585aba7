/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of host memory as programs of the second generation use it: fixed ranks, one of which runs the store, pieces
 * in batches, asynchronously.
 *
 *     ./02_pool_batches tcp://127.0.0.1:9000 2 0 &
 *     ./02_pool_batches tcp://127.0.0.1:9000 2 1
 */
#include <smem/host/smem.h>
#include <smem/host/smem_bm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECES = 64, PIECE = 4096 };

static void must(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, smem_get_and_clear_last_err_msg());
        exit(1);
    }
}

static void wait_a_little(void) {
    const struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
}

static char buffers[PIECES][PIECE];

int main(int argc, char** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s <store URL> <world size> <rank>\n", argv[0]);
        return 2;
    }
    const uint32_t world = (uint32_t)atoi(argv[2]);
    const uint32_t rank = (uint32_t)atoi(argv[3]);
    must(smem_set_log_level(5) == 0, "log level");
    must(smem_set_conf_store_tls(false, NULL, 0) == 0, "tls");
    if (rank == 0) must(smem_create_config_store(argv[1]) == 0, "store");
    smem_bm_config_t config;
    must(smem_bm_config_init(&config) == 0, "config");
    config.autoRanking = false;
    config.rankId = rank;
    config.startConfigStoreServer = false;
    must(smem_bm_init(argv[1], world, 0, &config) == 0, "bm_init");

    smem_bm_t pool = smem_bm_create(7, world, SMEMB_DATA_OP_SDMA, 4u << 20, 0, 0);
    must(pool != NULL, "create");
    char* own = (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)rank);
    must(smem_bm_join(pool, 0, NULL) == 0, "join");
    must(smem_bm_get_rank_id_by_gva(pool, own) == rank, "rank by address");
    must(smem_bm_register_user_mem(pool, (uint64_t)(uintptr_t)buffers, sizeof buffers) == 0, "register");

    char* target = (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)((rank + 1) % world));
    void* sources[PIECES];
    void* targets[PIECES];
    uint64_t sizes[PIECES];
    for (int i = 0; i < PIECES; ++i) {
        memset(buffers[i], (int)rank + 1, PIECE);
        sources[i] = buffers[i];
        targets[i] = target + 2 * i * PIECE; /* with gaps */
        sizes[i] = PIECE;
    }
    smem_batch_copy_params batch = {sources, targets, sizes, PIECES, NULL};
    int32_t code;
    while ((code = smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2G, 0)) == SMEM_NOT_CONNECTED) wait_a_little();
    must(code == 0, "batch");
    must(smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2GH, ASYNC_COPY_FLAG) == 0, "asynchronous batch");
    must(smem_bm_wait(pool, &batch, SMEMB_COPY_H2GH, 0) == 0, "wait");

    /* Pieces of a batch arrive in any order, so its writer says when all of them are there. Whoever has read that word
       may have left before its writer hears that it was written. */
    char done = 1;
    smem_copy_params word = {&done, target + (3u << 20), 1, NULL};
    code = smem_bm_copy(pool, &word, SMEMB_COPY_H2G, 0);
    must(code == SMEM_OK || code == SMEM_NOT_CONNECTED || code == SMEM_PARTIAL_FAILED, "last word");
    while (__atomic_load_n(own + (3u << 20), __ATOMIC_ACQUIRE) == 0) wait_a_little();

    const char expected = (char)((rank + world - 1) % world + 1);
    for (int i = 0; i < PIECES; ++i) {
        must(own[2 * i * PIECE] == expected && own[2 * i * PIECE + PIECE - 1] == expected, "a piece");
        must(own[(2 * i + 1) * PIECE] == 0, "a gap");
    }
    printf("rank %u got %d pieces of %d bytes\n", (unsigned)rank, (int)PIECES, (int)PIECE);
    must(smem_bm_unregister_user_mem(pool, (uint64_t)(uintptr_t)buffers) == 0, "unregister");
    smem_bm_destroy(pool);
    smem_bm_uninit(0);
    return 0;
}
