/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at once make the first call of the process, and then use pools of their own. Argument: the store's URL.
 */
#include <pthread.h>
#include <smem/host/smem_bm.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 2000 };
static pthread_barrier_t start;
static const char* url;

static void* use(void* given) {
    const uint32_t id = (uint32_t)(uintptr_t)given;
    smem_bm_config_t config;
    pthread_barrier_wait(&start);
    CHECK(smem_bm_config_init(&config) == 0);
    CHECK(smem_set_log_level(5) == 0);
    CHECK(smem_bm_init(url, 2, 0, &config) == 0);
    smem_bm_t pool = smem_bm_create(id, 2, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
    CHECK(pool != NULL && smem_bm_join(pool, 0) == 0);
    char* own = (char*)smem_bm_ptr(pool, (uint16_t)smem_bm_get_rank_id());
    for (uint32_t round = 1; round <= ROUNDS; ++round) {
        const uint32_t number = id * ROUNDS + round;
        CHECK(smem_bm_copy(pool, &number, own + 64, sizeof number, SMEMB_COPY_H2G, 0) == 0);
        CHECK(memcmp(own + 64, &number, sizeof number) == 0);
    }
    (void)smem_get_and_clear_last_err_msg();
    smem_bm_destroy(pool);
    CHECK(smem_get_last_err_code() == 0);
    smem_copy_params params = {own, own, 1, NULL};
    CHECK_FAILS(smem_bm_copy(pool, &params, SMEMB_COPY_G2G, 0), SMEM_INVALID_PARAM, "no handle");
    return NULL;
}

/* One thread destroys what others copy into: they see the end as a code. */
static smem_bm_t shared;
static char* shared_memory;

static void* copy_until_the_end(void* unused) {
    char bytes[512] = {1};
    int32_t code = 0;
    while ((code = smem_bm_copy(shared, bytes, shared_memory, sizeof bytes, SMEMB_COPY_H2G, 0)) == 0) {
    }
    CHECK(code == SMEM_INVALID_PARAM);
    return unused;
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    url = argv[1];
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (uintptr_t i = 0; i < THREADS; ++i) CHECK(pthread_create(&threads[i], NULL, use, (void*)i) == 0);
    for (int i = 0; i < THREADS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
    shared = smem_bm_create(99, 2, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
    CHECK(shared != NULL && smem_bm_join(shared, 0) == 0);
    shared_memory = (char*)smem_bm_ptr(shared, 0);
    for (int i = 0; i < THREADS; ++i) CHECK(pthread_create(&threads[i], NULL, copy_until_the_end, NULL) == 0);
    wait_a_little();
    smem_bm_destroy(shared);
    for (int i = 0; i < THREADS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
    puts("good");
    return 0;
}
