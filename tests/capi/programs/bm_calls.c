/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of smem_bm.h, and what it does, in a world of one rank, and for a moment two. Arguments: the URL of a
 * store that this process may run, and another one.
 */
#define _GNU_SOURCE 1
#include <signal.h>
#include <smem/host/smem_bm.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB (1ull << 20)

enum { WORLD = 4, BACKLOG = 500, ID = 6 /* its addresses can be had under valgrind; docs/c.md */ };
static smem_bm_t pool;
static char* dram;
static char* hbm;

static void before_initialisation(void) {
    smem_bm_t nonsense = (smem_bm_t)(uintptr_t)0x12345;
    smem_copy_params params = {NULL, NULL, 0, NULL};
    CHECK_FAILS(smem_bm_copy(nonsense, &params, SMEMB_COPY_AUTO, 0), SMEM_NOT_INIT, "not initialised");
    CHECK_FAILS(smem_bm_copy(NULL, &params, SMEMB_COPY_AUTO, 0), SMEM_INVALID_PARAM, "handle is NULL");
    CHECK_FAILS(smem_bm_copy(nonsense, NULL, SMEMB_COPY_AUTO, 0), SMEM_INVALID_PARAM, "params is NULL");
    CHECK_FAILS(smem_bm_join(nonsense, 0), SMEM_NOT_INIT, "not initialised");
    CHECK_REFUSED(smem_bm_create(0, 1, SMEMB_DATA_OP_SDMA, MIB, 0, 0), NULL, SMEM_NOT_INIT, "not initialised");
    CHECK_REFUSED(smem_bm_get_rank_id(), UINT32_MAX, SMEM_NOT_INIT, "not initialised");
    CHECK_FAILS(smem_bm_update_store_url("tcp://127.0.0.1:1"), SMEM_NOT_INIT, "not initialised");
    smem_bm_uninit(0);
}

static void refused_initialisation(const char* url) {
    smem_bm_config_t config;
    memset(&config, 0xff, sizeof config);
    CHECK(smem_bm_config_init(&config) == 0);
    CHECK(config.initTimeout == 120 && config.createTimeout == 120 && config.controlOperationTimeout == 120);
    CHECK(config.startConfigStoreServer && !config.startConfigStoreOnly && !config.dynamicWorldSize);
    CHECK(config.unifiedAddressSpace && config.autoRanking && config.flags == 0 && config.hcomUrl[0] == '\0');
    CHECK(!config.hcomTlsConfig.tlsEnable && !config.storeTlsConfig.tlsEnable);
    CHECK_FAILS(smem_bm_config_init(NULL), SMEM_INVALID_PARAM, "config is NULL");

    CHECK_FAILS(smem_bm_init(NULL, 1, 0, &config), SMEM_INVALID_PARAM, "storeURL is NULL");
    CHECK_FAILS(smem_bm_init(url, 1, 0, NULL), SMEM_INVALID_PARAM, "config is NULL");
    CHECK_FAILS(smem_bm_init(url, 1025, 0, &config), SMEM_INVALID_PARAM, "world_size is 1025");
    config.unifiedAddressSpace = false;
    CHECK_FAILS(smem_bm_init(url, 1, 0, &config), SMEM_INVALID_PARAM, "unified");
    config.unifiedAddressSpace = true;
    memset(config.hcomUrl, 'x', sizeof config.hcomUrl);
    CHECK_FAILS(smem_bm_init(url, 1, 0, &config), SMEM_INVALID_PARAM, "hcomUrl has no end");
    memset(config.hcomUrl, 0, sizeof config.hcomUrl);
    config.hcomTlsConfig.tlsEnable = true;
    CHECK(smem_bm_init(url, 1, 0, &config) != 0);
    config.hcomTlsConfig.tlsEnable = false;
    config.storeTlsConfig.tlsEnable = true;
    CHECK(smem_bm_init(url, 1, 0, &config) != 0);
    CHECK_REFUSED(smem_bm_get_rank_id(), UINT32_MAX, SMEM_NOT_INIT, "not initialised");
}

static void as_rank(const char* url, uint32_t rank) {
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    config.autoRanking = false;
    config.startConfigStoreServer = false;
    config.rankId = rank;
    CHECK(smem_bm_init(url, WORLD, 0, &config) == 0);
    CHECK(smem_bm_init(url, WORLD, 0, &config) == 0);
    CHECK(smem_bm_get_rank_id() == rank);
}

static void create(void) {
    CHECK_REFUSED(smem_bm_create2(0, NULL), NULL, SMEM_INVALID_PARAM, "option is NULL");
    smem_bm_create_option_t option;
    memset(&option, 0, sizeof option);
    option.dataOpType = SMEMB_DATA_OP_SDMA;
    option.maxDramSize = 8 * MIB;
    option.localDRAMSize = 9 * MIB;
    CHECK_REFUSED(smem_bm_create2(ID, &option), NULL, SMEM_INVALID_PARAM, "max");
    option.localDRAMSize = 3 * MIB; /* becomes 4 */
    option.maxHbmSize = option.localHBMSize = 2 * MIB;
    memset(option.tag, 'x', sizeof option.tag);
    CHECK_REFUSED(smem_bm_create2(ID, &option), NULL, SMEM_INVALID_PARAM, "tag has no end");
    option.tag[31] = '\0';
    CHECK_REFUSED(smem_bm_create2(ID, &option), NULL, SMEM_INVALID_PARAM, "31 characters");
    memset(option.tag, 0, sizeof option.tag);
    pool = smem_bm_create2(ID, &option);
    CHECK(pool != NULL);
    CHECK_REFUSED(smem_bm_create2(ID, &option), NULL, SMEM_DUPLICATED, "exists already");
    smem_bm_t plain = smem_bm_create(ID + 1, WORLD, SMEMB_DATA_OP_SDMA, MIB, 0, 0);
    CHECK(plain != NULL && smem_bm_get_local_mem_size(plain) == 2 * MIB);
    smem_bm_destroy(plain);
}

static void addresses(void) {
    const uint32_t rank = smem_bm_get_rank_id();
    dram = (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, (uint16_t)rank);
    hbm = (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_DEVICE, (uint16_t)rank);
    CHECK(dram != NULL && hbm != NULL);
    CHECK((char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_LOCAL_HOST, (uint16_t)(rank - 1)) == dram - 8 * MIB);
    CHECK(smem_bm_ptr(pool, (uint16_t)rank) == hbm); /* it has HBM */
    CHECK_REFUSED(smem_bm_ptr(pool, 4), NULL, SMEM_INVALID_PARAM, "4");
    CHECK_REFUSED(smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_BUTT, 0), NULL, SMEM_INVALID_PARAM, "memory type is 4");
    CHECK(smem_bm_get_local_mem_size_by_mem_type(pool, SMEM_MEM_TYPE_HOST) == 4 * MIB);
    CHECK(smem_bm_get_local_mem_size(pool) == 2 * MIB);
    CHECK(smem_bm_get_rank_id_by_gva(pool, dram + 8 * MIB - 1) == rank);
    CHECK(smem_bm_get_rank_id_by_gva(pool, dram - 1) == rank - 1);
    CHECK_REFUSED(smem_bm_get_rank_id_by_gva(pool, pool), UINT32_MAX, SMEM_INVALID_PARAM, "");
}

static void take_part(void) {
    char word[8] = "word";
    CHECK_FAILS(smem_bm_copy(pool, word, dram, 8, SMEMB_COPY_H2G, 0), SMEM_NOT_STARTED, "join");
    void* own = NULL;
    CHECK(smem_bm_join(pool, 0, &own) == 0 && own == hbm);
    CHECK(smem_bm_join(pool, 0) == 0);
    CHECK(smem_bm_copy(pool, word, dram, 8, SMEMB_COPY_H2G, 0) == 0 && strcmp(dram, "word") == 0);
    CHECK(smem_bm_leave(pool, 0) == 0);
    CHECK_FAILS(smem_bm_leave(pool, 0), SMEM_NOT_STARTED, "join");
    CHECK(smem_bm_join(pool, 0) == 0);

    void* here = NULL;
    CHECK(smem_bm_gva_to_va(pool, dram + 5, SMEM_MEM_TYPE_LOCAL_HOST, &here) == 0 && here == dram + 5);
    CHECK_FAILS(smem_bm_gva_to_va(pool, dram - 8 * MIB, SMEM_MEM_TYPE_LOCAL_HOST, &here), SMEM_INVALID_PARAM, "mapped");
    CHECK_FAILS(smem_bm_gva_to_va(pool, NULL, SMEM_MEM_TYPE_LOCAL_HOST, &here), SMEM_INVALID_PARAM, "gva is NULL");
    CHECK_FAILS(smem_bm_gva_to_va(pool, dram, SMEM_MEM_TYPE_LOCAL_HOST, NULL), SMEM_INVALID_PARAM, "va is NULL");

    CHECK_FAILS(smem_bm_copy(pool, word, dram + 4 * MIB, 8, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "4194304");
    CHECK(smem_bm_extend_local_mem(pool, SMEM_MEM_TYPE_HOST, MIB) == 0);
    CHECK(smem_bm_get_local_mem_size_by_mem_type(pool, SMEM_MEM_TYPE_HOST) == 6 * MIB);
    CHECK(smem_bm_copy(pool, word, dram + 4 * MIB, 8, SMEMB_COPY_H2G, 0) == 0);
    CHECK_FAILS(smem_bm_extend_local_mem(pool, SMEM_MEM_TYPE_HOST, 3 * MIB), SMEM_INVALID_PARAM, "max");

    CHECK(smem_bm_register_user_mem(pool, (uint64_t)(uintptr_t)word, sizeof word) == 0);
    CHECK_FAILS(smem_bm_register_user_mem(pool, (uint64_t)(uintptr_t)word, 4), SMEM_DUPLICATED, "registered");
    CHECK(smem_bm_unregister_user_mem(pool, (uint64_t)(uintptr_t)word) == 0);
    CHECK_FAILS(smem_bm_unregister_user_mem(pool, (uint64_t)(uintptr_t)word), SMEM_NOT_EXIST, "nothing");
}

static void copies(void) {
    static char source[64 * 1024];
    static char target[64 * 1024];
    for (size_t i = 0; i < sizeof source; ++i) source[i] = (char)(i * 31 + 7);
    smem_copy_params params = {source, hbm, sizeof source, NULL};
    CHECK(smem_bm_copy(pool, &params, SMEMB_COPY_L2G, 0) == 0 && memcmp(hbm, source, sizeof source) == 0);
    CHECK(smem_bm_copy(pool, hbm, dram, sizeof source, SMEMB_COPY_G2G, 0) == 0);
    CHECK(smem_bm_copy(pool, dram, target, sizeof source, SMEMB_COPY_GH2H, 0) == 0);
    CHECK(memcmp(source, target, sizeof source) == 0);
    CHECK_FAILS(smem_bm_copy(pool, source, hbm, 8, SMEMB_COPY_H2GH, 0), SMEM_INVALID_PARAM, "HBM");
    CHECK_FAILS(smem_bm_copy(pool, source, hbm, 8, SMEMB_COPY_BUTT, 0), SMEM_INVALID_PARAM, "10");
    CHECK_FAILS(smem_bm_copy(pool, NULL, hbm, 8, SMEMB_COPY_L2G, 0), SMEM_INVALID_PARAM, "");

    void* sources[3] = {source, source + 100, source + 200};
    void* targets[3] = {dram + MIB, dram + MIB + 1000, dram + MIB + 2000};
    uint64_t sizes[3] = {10, 20, 30};
    smem_batch_copy_params batch = {sources, targets, sizes, 3, NULL};
    CHECK(smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2G, 0) == 0);
    for (int i = 0; i < 3; ++i) CHECK(memcmp(targets[i], sources[i], (size_t)sizes[i]) == 0);
    CHECK(dram[MIB + 10] == 0);
    CHECK_FAILS(smem_bm_copy_batch(pool, NULL, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "params is NULL");
    sizes[2] = 0;
    CHECK_FAILS(smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "piece 2");
    sizes[2] = 30;
    batch.dataSizes = NULL;
    CHECK_FAILS(smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "dataSizes is NULL");
    batch.dataSizes = sizes;
    batch.batchSize = 0;
    CHECK_FAILS(smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "");
    batch.batchSize = 3;

    CHECK(smem_bm_copy_2d(pool, source, 64, dram + 2 * MIB, 32, 16, 4, SMEMB_COPY_H2G, 0) == 0);
    for (int row = 0; row < 4; ++row) CHECK(memcmp(dram + 2 * MIB + row * 32, source + row * 64, 16) == 0);
    CHECK_FAILS(smem_bm_copy_2d(pool, source, 8, dram, 32, 16, 4, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "pitch");
}

/* So many that the last is not done when the call that begins it returns. */
static void begin_many(smem_copy_params* params, uint32_t flags) {
    for (int i = 0; i < BACKLOG; ++i) CHECK(smem_bm_copy(pool, params, SMEMB_COPY_H2G, flags) == 0);
}

/* By the object, and on a stream. */
static void asynchronous_copies(void) {
    static char before[64 * 1024];
    static char after[64 * 1024];
    memset(before, 1, sizeof before);
    memset(after, 2, sizeof after);
    smem_copy_params params = {before, dram, sizeof before, NULL};
    smem_copy_params last = {after, dram, sizeof after, NULL};
    begin_many(&params, SMEM_BM_COPY_ASYNC);
    CHECK(smem_bm_copy(pool, &last, SMEMB_COPY_H2G, SMEM_BM_COPY_ASYNC) == 0);
    CHECK(smem_bm_wait(pool) == 0 && memcmp(dram, after, sizeof after) == 0);
    smem_batch_copy_params none;
    memset(&none, 0, sizeof none);
    begin_many(&params, SMEM_BM_COPY_ASYNC);
    CHECK(smem_bm_copy(pool, &last, SMEMB_COPY_H2G, SMEM_BM_COPY_ASYNC) == 0);
    CHECK(smem_bm_wait(pool, &none, SMEMB_COPY_H2G, 0) == 0 && memcmp(dram, after, sizeof after) == 0);

    void* stream = NULL;
    CHECK(smem_stream_create(&stream) == 0);
    params.dest = dram + 3 * MIB;
    params.stream = stream;
    begin_many(&params, SMEM_BM_COPY_STREAM);
    void* sources[1] = {after};
    void* targets[1] = {dram + 3 * MIB};
    uint64_t sizes[1] = {sizeof after};
    smem_batch_copy_params batch = {sources, targets, sizes, 1, stream};
    CHECK(smem_bm_copy_batch(pool, &batch, SMEMB_COPY_H2G, SMEM_BM_COPY_STREAM) == 0);
    CHECK(smem_stream_wait(stream) == 0 && memcmp(dram + 3 * MIB, after, sizeof after) == 0);
    CHECK(smem_stream_destroy(stream) == 0);
    CHECK_FAILS(smem_bm_copy(pool, &params, SMEMB_COPY_H2G, SMEM_BM_COPY_STREAM), SMEM_INVALID_PARAM, "stream");
}

static void with_own_memory(void) {
    const int file = memfd_create("pool", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, (off_t)(2 * MIB)) == 0);
    smem_bm_create_option_t option;
    memset(&option, 0, sizeof option);
    option.maxDramSize = option.localDRAMSize = 2 * MIB;
    option.dataOpType = SMEMB_DATA_OP_SDMA;
    option.flags = SMEM_BM_CREATE_WITH_SHM;
    option.dramShmFd = file;
    smem_bm_t shown = smem_bm_create2(ID + 2, &option);
    CHECK(shown != NULL && smem_bm_join(shown, 0) == 0);
    char* own = (char*)smem_bm_ptr(shown, (uint16_t)smem_bm_get_rank_id()); /* it has no HBM */
    char* view = (char*)mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, file, 0);
    CHECK(smem_bm_copy(shown, "seen", own, 5, SMEMB_COPY_H2G, 0) == 0 && strcmp(view, "seen") == 0);
    CHECK(smem_bm_get_local_mem_size(shown) == 2 * MIB);
    munmap(view, 2 * MIB);
    close(file);
    /* Uninitialising destroys it. */
}

/* ---- another rank, which comes and dies -------------------------------------------------------------------------- */

static int events[2]; /* by kind */

static void on_event(smem_bm_t of, uint32_t rank, smem_bm_group_event_t event, void* context) {
    CHECK(of == pool && rank == 1 && context == events);
    CHECK(smem_bm_ptr(of, (uint16_t)rank) != NULL); /* it may call the library */
    __atomic_fetch_add(&events[event], 1, __ATOMIC_SEQ_CST);
}

static int events_of(smem_bm_group_event_t kind) { return __atomic_load_n(&events[kind], __ATOMIC_SEQ_CST); }

static pid_t start_rank_1(const char* url) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0); /* it ends with us, however that happens */
    as_rank(url, 1);
    smem_bm_create_option_t option;
    memset(&option, 0, sizeof option);
    option.dataOpType = SMEMB_DATA_OP_SDMA;
    option.maxDramSize = 8 * MIB;
    option.localDRAMSize = 2 * MIB;
    option.maxHbmSize = 2 * MIB;
    smem_bm_t same = smem_bm_create2(ID, &option);
    CHECK(same != NULL && smem_bm_join(same, 0) == 0);
    for (;;) pause(); /* until it is killed */
}

static void end(pid_t child) {
    int status = 0;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static void group_events(const char* url) {
    CHECK_FAILS(smem_bm_set_group_event_handler(NULL, on_event, NULL), SMEM_INVALID_PARAM, "handle is NULL");
    CHECK(smem_bm_set_group_event_handler(pool, on_event, events) == 0);
    pid_t child = start_rank_1(url);
    CHECK_SOON(events_of(SMEM_GROUP_EVENT_JOIN) == 1);
    char word[8] = "word";
    char* theirs = (char*)smem_bm_ptr_by_mem_type(pool, SMEM_MEM_TYPE_HOST, 1);
    CHECK(smem_bm_copy(pool, word, theirs, sizeof word, SMEMB_COPY_H2G, 0) == 0 && strcmp(theirs, "word") == 0);
    end(child);
    CHECK_SOON(events_of(SMEM_GROUP_EVENT_LEAVE) == 1);
    CHECK_FAILS(smem_bm_copy(pool, word, theirs, sizeof word, SMEMB_COPY_H2G, 0), SMEM_NOT_CONNECTED, "rank 1");
    CHECK(smem_bm_set_group_event_handler(pool, NULL, NULL) == 0);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* The one store of this process knows rank 3. */
static int store_knows_us(void) {
    char text[4096];
    size_t size = sizeof text;
    return smem_config_store_get_cluster_status(text, &size) == 0 && strstr(text, "\"ranks\": [3]") != NULL;
}

static void another_store(const char* url, const char* other) {
    CHECK_SOON(store_knows_us()); /* and of nobody else: the one that was killed just now is gone */
    smem_destroy_config_store(url);
    CHECK(smem_create_config_store(other) == 0 && !store_knows_us());
    CHECK_FAILS(smem_bm_update_store_url("nonsense"), SMEM_INVALID_PARAM, "nonsense");
    CHECK(smem_bm_update_store_url(other) == 0);
    CHECK_SOON(store_knows_us());
}

static void ends(void) {
    smem_bm_destroy(pool);
    char word[8] = "";
    CHECK_FAILS(smem_bm_copy(pool, word, dram, 8, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "no handle");
    CHECK_FAILS(smem_bm_wait(pool), SMEM_INVALID_PARAM, "no handle");
    CHECK_FAILS(smem_bm_join(pool, 0), SMEM_INVALID_PARAM, "no handle");
    smem_bm_destroy(pool);
    CHECK(smem_get_last_err_code() == SMEM_INVALID_PARAM);
    smem_bm_uninit(0);
    CHECK_FAILS(smem_bm_wait(pool), SMEM_NOT_INIT, "not initialised");
}

int main(int argc, char** argv) {
    CHECK(argc == 3 && smem_set_log_level(5) == 0);
    before_initialisation();
    refused_initialisation(argv[1]);
    CHECK(smem_create_config_store(argv[1]) == 0);
    as_rank(argv[1], 3);
    create();
    addresses();
    take_part();
    copies();
    asynchronous_copies();
    with_own_memory();
    group_events(argv[1]);
    another_store(argv[1], argv[2]);
    ends();
    puts("good");
    return 0;
}
