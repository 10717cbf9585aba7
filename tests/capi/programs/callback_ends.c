/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callbacks that are taken back, or whose object is destroyed, while they run or have more to hear: what they work with
 * may be freed as soon as that call returns. Arguments: the store's URL, the sessions of two engines.
 */
#include <pthread.h>
#include <signal.h>
#include <smem/host/smem_bm.h>
#include <smem/host/smem_trans.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { WORLD = 2 };

/* What a callback works with. Each is inside for as long as it takes to notice who does not wait for it. */
typedef struct {
    int is_inside, is_awaited, has_left, is_freed, calls;
} Work;

static int look(int* what) { return __atomic_load_n(what, __ATOMIC_SEQ_CST); }
static void tell(int* what) { __atomic_store_n(what, 1, __ATOMIC_SEQ_CST); }

static void be_inside(Work* work) {
    CHECK(!look(&work->is_freed));
    __atomic_fetch_add(&work->calls, 1, __ATOMIC_SEQ_CST);
    tell(&work->is_inside);
    CHECK_SOON(look(&work->is_awaited));
    for (int i = 0; i < 100; ++i) wait_a_little();
    tell(&work->has_left);
}

static void await_inside(Work* work) {
    CHECK_SOON(look(&work->is_inside));
    tell(&work->is_awaited);
}

static void free_work(Work* work) {
    CHECK(look(&work->has_left));
    tell(&work->is_freed);
}

/* ---- group events ------------------------------------------------------------------------------------------------ */

static smem_bm_t take_part(const char* url, uint32_t rank, uint32_t id) {
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    config.autoRanking = false;
    config.rankId = rank;
    CHECK(smem_bm_init(url, WORLD, 0, &config) == 0);
    smem_bm_t pool = smem_bm_create(id, WORLD, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
    CHECK(pool != NULL && smem_bm_join(pool, 0) == 0);
    return pool;
}

static pid_t start_rank_1(const char* url) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    for (uint32_t id = 0; id < 2; ++id) take_part(url, 1, id);
    for (;;) pause();
}

static void on_event(smem_bm_t pool, uint32_t rank, smem_bm_group_event_t event, void* context) {
    CHECK(pool != NULL && rank == 1 && event == SMEM_GROUP_EVENT_JOIN);
    be_inside((Work*)context);
}

static void group_events(const char* url) {
    Work taken_back = {0}, destroyed = {0};
    smem_bm_t first = take_part(url, 0, 0);
    smem_bm_t second = take_part(url, 0, 1);
    CHECK(smem_bm_set_group_event_handler(first, on_event, &taken_back) == 0);
    CHECK(smem_bm_set_group_event_handler(second, on_event, &destroyed) == 0);
    const pid_t child = start_rank_1(url);
    await_inside(&taken_back);
    CHECK(smem_bm_set_group_event_handler(first, NULL, NULL) == 0);
    free_work(&taken_back);
    await_inside(&destroyed);
    smem_bm_destroy(second); /* for which everybody leaves: nobody is told any more */
    free_work(&destroyed);
    smem_bm_uninit(0); /* which ends the thread of these callbacks */
    CHECK(look(&taken_back.calls) == 1 && look(&destroyed.calls) == 1);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* ---- peers that are down ----------------------------------------------------------------------------------------- */

static void on_down(const char* session, void* context) {
    CHECK(session != NULL);
    be_inside((Work*)context);
}

static void peers_down(const char* own, const char* peer) {
    static char byte[64];
    smem_trans_config_t config;
    CHECK(smem_trans_config_init(&config) == 0 && smem_trans_init(&config) == 0);
    for (int destroys = 0; destroys < 2; ++destroys) {
        Work work = {0};
        smem_trans_t source = smem_trans_create(NULL, own, &config);
        smem_trans_t target = smem_trans_create(NULL, peer, &config);
        CHECK(source != NULL && target != NULL && smem_trans_register_mem(target, byte, sizeof byte, 0) == 0);
        CHECK(smem_trans_write(source, "x", peer, byte, 1, 0) == 0);
        CHECK(smem_trans_set_peer_down_callback(source, on_down, &work) == 0);
        smem_trans_destroy(target, 0);
        await_inside(&work);
        if (destroys == 0) CHECK(smem_trans_set_peer_down_callback(source, NULL, NULL) == 0);
        if (destroys == 1) smem_trans_destroy(source, 0);
        free_work(&work);
        if (destroys == 0) smem_trans_destroy(source, 0);
    }
    smem_trans_uninit(0);
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

static Work logged;

static void on_line(int level, const char* text) {
    CHECK(level == 3 && strstr(text, "handle is NULL") != NULL);
    be_inside(&logged);
}

static void* fail_and_log(void* unused) {
    CHECK(smem_bm_join(NULL, 0) == SMEM_INVALID_PARAM);
    return unused;
}

static void lines(void) {
    pthread_t other;
    CHECK(smem_set_log_level(3) == 0 && smem_set_extern_logger(on_line) == 0);
    CHECK(pthread_create(&other, NULL, fail_and_log, NULL) == 0);
    await_inside(&logged);
    CHECK(smem_set_extern_logger(NULL) == 0);
    free_work(&logged);
    CHECK(pthread_join(other, NULL) == 0 && smem_set_log_level(5) == 0);
}

int main(int argc, char** argv) {
    CHECK(argc == 4 && smem_set_log_level(5) == 0);
    group_events(argv[1]);
    peers_down(argv[2], argv[3]);
    lines();
    puts("good");
    return 0;
}
