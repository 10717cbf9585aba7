/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member forks while its threads are busy in the library, without a word to anybody. Children know that nothing of
 * their parent's is theirs, and become members of their own. Argument: the store's URL.
 */
#include <pthread.h>
#include <smem/host/smem_bm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { SHORT_LIVED = 400, CHILDREN = 24, WORLD = 64 };
static const char* url;
static smem_bm_t pool;
static char* own;
static int is_over;

static void enter(uint32_t object_id) {
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    CHECK(smem_bm_init(url, WORLD, 0, &config) == 0);
    pool = smem_bm_create(object_id, WORLD, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
    CHECK(pool != NULL && smem_bm_join(pool, 0) == 0);
    own = (char*)smem_bm_ptr(pool, (uint16_t)smem_bm_get_rank_id());
}

/* Half of its calls go into Python, half to the core. */
static void* be_busy(void* unused) {
    char bytes[256] = {0};
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        CHECK(smem_bm_copy(pool, bytes, own, sizeof bytes, SMEMB_COPY_H2G, 0) == 0);
        CHECK(smem_bm_get_local_mem_size(pool) == 2u << 20);
        CHECK(smem_bm_copy(pool, own, own, 0, SMEMB_COPY_G2G, 0) == SMEM_INVALID_PARAM);
    }
    return unused;
}

static void be_a_child(int number) {
    char bytes[16] = "child";
    CHECK_FAILS(smem_bm_copy(pool, bytes, own, sizeof bytes, SMEMB_COPY_H2G, 0), SMEM_NOT_INIT, "");
    CHECK_FAILS(smem_bm_join(pool, 0), SMEM_NOT_INIT, "");
    CHECK_REFUSED(smem_bm_get_rank_id(), UINT32_MAX, SMEM_NOT_INIT, "");
    CHECK_REFUSED(smem_bm_get_rank_id_by_gva(pool, own), UINT32_MAX, SMEM_NOT_INIT, "");
    if (number % 4 == 0 || number >= CHILDREN) _exit(0); /* without a word */
    enter(1);
    CHECK(smem_bm_copy(pool, bytes, own, sizeof bytes, SMEMB_COPY_H2G, 0) == 0 && strcmp(own, "child") == 0);
    if (number % 4 == 1) _exit(0);
    if (number % 4 == 2) smem_uninit();
    exit(0);
}

static void fork_child(int number) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) be_a_child(number);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Into Python and out again: each time the interpreter gets to know the thread anew. */
static void* be_in_python(void* unused) {
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) CHECK(smem_bm_get_local_mem_size(pool) == 2u << 20);
    return unused;
}

static void with_threads(void* (*work)(void*), int first, int end) {
    pthread_t threads[4];
    is_over = 0;
    for (int i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int number = first; number < end; ++number) fork_child(number);
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    url = argv[1];
    CHECK(smem_set_log_level(5) == 0);
    enter(0);
    with_threads(be_busy, 0, CHILDREN);
    with_threads(be_in_python, CHILDREN, CHILDREN + SHORT_LIVED);
    char bytes[16] = "parent";
    CHECK(smem_bm_copy(pool, bytes, own, sizeof bytes, SMEMB_COPY_H2G, 0) == 0 && strcmp(own, "parent") == 0);
    puts("good");
    return 0;
}
