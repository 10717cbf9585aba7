/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says that an array has one number more than it has: only a library that is watched itself finds out. Argument: the
 * URL of a store that this process may run.
 */
#include <smem/host/smem_bm.h>

#include "check.h"

int main(int argc, char** argv) {
    CHECK(argc == 2 && smem_set_log_level(5) == 0);
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0 && smem_bm_init(argv[1], 1, 0, &config) == 0);
    smem_bm_t pool = smem_bm_create(0, 1, SMEMB_DATA_OP_SDMA, 1u << 20, 0, 0);
    CHECK(pool != NULL && smem_bm_join(pool, 0) == 0);
    char bytes[2] = "x";
    void* sources[2] = {bytes, bytes};
    void* targets[2] = {smem_bm_ptr(pool, 0), smem_bm_ptr(pool, 0)};
    uint64_t* sizes = (uint64_t*)malloc(sizeof *sizes);
    CHECK(sizes != NULL);
    sizes[0] = 1;
    smem_batch_copy_params batch = {sources, targets, sizes, 2, NULL};
    (void)smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2G, 0);
    free(sizes);
    puts("nobody noticed");
    return 0;
}
