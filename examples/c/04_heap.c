/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A symmetric heap: every rank shifts a row into the memory of the next one, of this host or another, then all compare
 * notes.
 *
 *     ./04_heap tcp://127.0.0.1:9000 2 0 &
 *     ./04_heap tcp://127.0.0.1:9000 2 1
 */
#include <smem/device/smem_shm_aicore_base_api.h>
#include <smem/host/smem.h>
#include <smem/host/smem_shm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 4096 };

static void must(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, smem_get_last_err_msg());
        exit(1);
    }
}

int main(int argc, char** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s <store URL> <world size> <rank>\n", argv[0]);
        return 2;
    }
    const uint32_t world = (uint32_t)atoi(argv[2]);
    const uint32_t rank = (uint32_t)atoi(argv[3]);
    smem_shm_config_t config;
    must(smem_set_log_level(5) == 0, "log level");
    must(smem_shm_config_init(&config) == 0, "config");
    must(smem_shm_init(argv[1], world, rank, 0, &config) == 0, "shm_init");
    void* gva = NULL;
    smem_shm_t heap = smem_shm_create(4, world, rank, 1u << 20, SMEMS_DATA_OP_MTE, 0, &gva);
    must(heap != NULL, "create");
    must(smem_shm_get_global_rank(heap) == rank && smem_shm_get_global_rank_size(heap) == world, "ranks");

    const uint64_t size = smem_shm_get_symmetric_size(heap);
    const uint32_t next = (rank + 1) % world;
    static uint32_t row[NUMBERS];
    for (uint32_t i = 0; i < NUMBERS; ++i) row[i] = rank * 100000u + i;
    must(smem_shm_copy((char*)gva + next * size, row, sizeof row) == 0, "copy");
    must(smem_shm_control_barrier(heap) == 0, "barrier");

    const uint32_t* own = (const uint32_t*)(const void*)((char*)gva + rank * size);
    const uint32_t before = (rank + world - 1) % world;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < NUMBERS; ++i) {
        must(own[i] == before * 100000u + i, "a number");
        sum += own[i];
    }
    uint64_t* sums = (uint64_t*)calloc(world, sizeof sum);
    must(smem_shm_control_allgather(heap, (const char*)&sum, sizeof sum, (char*)sums, (uint32_t)(world * sizeof sum)) ==
             0,
         "allgather");
    must(sums[rank] == sum, "own sum");
    printf("rank %u got a row from rank %u; the sums begin with %llu\n", (unsigned)rank, (unsigned)before,
           (unsigned long long)sums[0]);
    free(sums);
    must(smem_shm_control_barrier(heap) == 0, "last barrier");
    must(smem_shm_destroy(heap, 0) == 0, "destroy");
    smem_shm_uninit(0);
    return 0;
}
