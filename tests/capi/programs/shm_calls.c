/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of smem_shm.h, and what it does, in a world of two ranks. Arguments: the store's URL, and the rank.
 */
#include <smem/host/smem_shm.h>

#include "check.h"

#define MIB (1ull << 20)

static int exit_status;

static void on_exit_of_all(int status) {
    __atomic_store_n(&exit_status, status, __ATOMIC_SEQ_CST);
    CHECK(smem_get_abi_version() == SMEM_ABI_VERSION);
}

/* kernel_view.cpp */
#ifdef __cplusplus
extern "C"
#endif
    int kernel_sees(uint32_t id, uint32_t rank, uint32_t rank_size, uint64_t symmetric_size, const char* context);

static void initialisation(const char* url, uint32_t rank) {
    smem_shm_t nonsense = (smem_shm_t)(uintptr_t)0x12345;
    void* gva = NULL;
    CHECK_FAILS(smem_shm_control_barrier(nonsense), SMEM_NOT_INIT, "not initialised");
    CHECK_FAILS(smem_shm_control_barrier(NULL), SMEM_INVALID_PARAM, "handle is NULL");
    CHECK_REFUSED(smem_shm_create(0, 2, rank, MIB, SMEMS_DATA_OP_MTE, 0, &gva), NULL, SMEM_NOT_INIT, "not initialised");
    CHECK_REFUSED(smem_shm_create(0, 2, rank, MIB, SMEMS_DATA_OP_MTE, 0, NULL), NULL, SMEM_INVALID_PARAM,
                  "gva is NULL");
    CHECK_REFUSED(smem_shm_get_global_rank(nonsense), UINT32_MAX, SMEM_NOT_INIT, "not initialised");

    smem_shm_config_t config;
    memset(&config, 0xff, sizeof config);
    CHECK(smem_shm_config_init(&config) == 0);
    CHECK(config.shmInitTimeout == 120 && config.shmCreateTimeout == 120 && config.controlOperationTimeout == 120);
    CHECK(config.startConfigStoreServer && config.flags == 0);
    CHECK_FAILS(smem_shm_config_init(NULL), SMEM_INVALID_PARAM, "config is NULL");
    CHECK_FAILS(smem_shm_init(NULL, 2, rank, 0, &config), SMEM_INVALID_PARAM, "configStoreIpPort is NULL");
    CHECK_FAILS(smem_shm_init(url, 2, rank, 0, NULL), SMEM_INVALID_PARAM, "config is NULL");
    CHECK_FAILS(smem_shm_init(url, 2, 2, 0, &config), SMEM_INVALID_PARAM, "rank_id is 2");
    config.controlOperationTimeout = 20;
    CHECK(smem_shm_init(url, 2, rank, 0, &config) == 0);
    CHECK(smem_shm_init(url, 2, rank, 0, &config) == 0);
    CHECK(smem_shm_query_support_data_operation() == SMEMS_DATA_OP_MTE);
}

static void gathers(smem_shm_t heap, uint32_t rank) {
    char word[8];
    char words[16] = "";
    snprintf(word, sizeof word, "rank %u", (unsigned)rank);
    CHECK(smem_shm_control_allgather(heap, word, 8, words, 16) == 0);
    CHECK(strcmp(words, "rank 0") == 0 && strcmp(words + 8, "rank 1") == 0);
    CHECK_FAILS(smem_shm_control_allgather(heap, word, 8, words, 8), SMEM_INVALID_PARAM, "recvSize is 8, expected 16");
    CHECK_FAILS(smem_shm_control_allgather(heap, word, 0, words, 0), SMEM_INVALID_PARAM, "sendSize is 0");
    CHECK_FAILS(smem_shm_control_allgather(heap, NULL, 8, words, 16), SMEM_INVALID_PARAM, "sendBuf is NULL");
    CHECK_FAILS(smem_shm_control_allgather(heap, word, 8, NULL, 16), SMEM_INVALID_PARAM, "recvBuf is NULL");

    /* Numbered the other way round. */
    CHECK(smem_shm_subgroup_allgather(heap, "turned", 2, 1 - rank, word, 8, words, 16) == 0);
    CHECK(strcmp(words, "rank 1") == 0 && strcmp(words + 8, "rank 0") == 0);
    CHECK_FAILS(smem_shm_subgroup_allgather(heap, "turned", 2, 1 - rank, word, 8, words, 9), SMEM_INVALID_PARAM, "16");
}

static void values(smem_shm_t heap, uint32_t rank) {
    int32_t value = -1;
    char mine;
    char all[2];
    CHECK(smem_shm_atomic_alloc_value(heap, 2, &value) == 0 && (value == 0 || value == 1));
    mine = (char)value;
    CHECK(smem_shm_control_allgather(heap, &mine, 1, all, 2) == 0 && all[0] != all[1]);
    CHECK_FAILS(smem_shm_atomic_alloc_value(heap, 2, &value), SMEM_NO_RESOURCES, "in use");
    CHECK_FAILS(smem_shm_atomic_alloc_value(heap, 2, NULL), SMEM_INVALID_PARAM, "value is NULL");
    CHECK(smem_shm_control_barrier(heap) == 0);
    if (rank == 0) {
        CHECK_FAILS(smem_shm_atomic_release_value(heap, all[1]), SMEM_NOT_EXIST, "not held");
        CHECK_FAILS(smem_shm_atomic_release_value(heap, -5), SMEM_NOT_EXIST, "-5");
        CHECK(smem_shm_atomic_release_value(heap, mine) == 0);
        CHECK(smem_shm_atomic_alloc_value(heap, 2, &value) == 0 && value == mine);
    }
    CHECK(smem_shm_control_barrier(heap) == 0);
}

/* One comes later than the other: who does not wait has not seen what it wrote. */
static void be_late(uint32_t rank) {
    const struct timespec pause = {0, 100000000};
    if (rank == 1) nanosleep(&pause, NULL);
}

static volatile char* memory_of(char* gva, uint32_t rank, smem_shm_t heap) {
    return gva + rank * smem_shm_get_symmetric_size(heap);
}

static smem_shm_t create(uint32_t rank, char** gva) {
    void* start = NULL;
    smem_shm_t heap = smem_shm_create(5, 2, rank, MIB, SMEMS_DATA_OP_MTE, 0, &start);
    CHECK(heap != NULL && start != NULL);
    *gva = (char*)start;
    CHECK(smem_shm_get_global_rank(heap) == rank && smem_shm_get_global_rank_size(heap) == 2);
    CHECK(smem_shm_get_symmetric_size(heap) == 2 * MIB);
    uint32_t reach = 0;
    CHECK(smem_shm_topology_can_reach(heap, 1 - rank, &reach) == 0 && (reach & SMEMS_DATA_OP_MTE) != 0);
    CHECK_FAILS(smem_shm_topology_can_reach(heap, 2, &reach), SMEM_INVALID_PARAM, "remote_rank is 2");
    CHECK_FAILS(smem_shm_topology_can_reach(heap, 0, NULL), SMEM_INVALID_PARAM, "reachInfo is NULL");

    CHECK(smem_shm_set_extra_context(heap, "context", 8) == 0);
    CHECK(kernel_sees(5, rank, 2, 2 * MIB, "context"));
    CHECK_FAILS(smem_shm_set_extra_context(heap, "", 0), SMEM_INVALID_PARAM, "0 bytes");
    CHECK_FAILS(smem_shm_set_extra_context(heap, NULL, 8), SMEM_INVALID_PARAM, "context is NULL");
    return heap;
}

static void barriers(smem_shm_t heap, uint32_t rank, char* gva) {
    volatile char* own = memory_of(gva, rank, heap);
    volatile char* other = memory_of(gva, 1 - rank, heap);
    be_late(rank);
    other[2 * MIB - 1] = (char)(rank + 1);
    CHECK(smem_shm_control_barrier(heap) == 0);
    CHECK(own[2 * MIB - 1] == (char)(2 - rank));

    /* The same by a subgroup of both, numbered the other way round. */
    be_late(rank);
    other[0] = (char)(rank + 1);
    CHECK(smem_shm_subgroup_barrier(heap, "turned", 2, 1 - rank) == 0);
    CHECK(own[0] == (char)(2 - rank));
    CHECK_FAILS(smem_shm_subgroup_barrier(heap, NULL, 2, rank), SMEM_INVALID_PARAM, "key is NULL");
    CHECK_FAILS(smem_shm_subgroup_barrier(heap, "turned", 3, rank), SMEM_INVALID_PARAM, "rank_size is 3");
    /* Alone. */
    CHECK(smem_shm_subgroup_barrier(heap, rank == 0 ? "first" : "second", 1, 0) == 0);
}

static void exits(smem_shm_t heap, uint32_t rank) {
    CHECK_FAILS(smem_shm_register_exit(heap, NULL), SMEM_INVALID_PARAM, "exit is NULL");
    CHECK(smem_shm_register_exit(heap, on_exit_of_all) == 0);
    CHECK(smem_shm_control_barrier(heap) == 0);
    if (rank == 1) smem_shm_global_exit(heap, 42);
    CHECK_SOON(__atomic_load_n(&exit_status, __ATOMIC_SEQ_CST) == 42);
    CHECK(smem_shm_control_barrier(heap) == 0);
}

static void ends(smem_shm_t heap) {
    CHECK(smem_shm_destroy(heap, 0) == 0);
    CHECK_FAILS(smem_shm_destroy(heap, 0), SMEM_INVALID_PARAM, "no handle");
    CHECK_FAILS(smem_shm_control_barrier(heap), SMEM_INVALID_PARAM, "no handle");
    CHECK_REFUSED(smem_shm_get_symmetric_size(heap), 0, SMEM_INVALID_PARAM, "no handle");
    smem_shm_global_exit(heap, 1);
    CHECK(smem_get_last_err_code() == SMEM_INVALID_PARAM);
    smem_shm_uninit(0);
    CHECK_FAILS(smem_shm_control_barrier(heap), SMEM_NOT_INIT, "not initialised");
}

int main(int argc, char** argv) {
    CHECK(argc == 3 && smem_set_log_level(5) == 0);
    const uint32_t rank = (uint32_t)atoi(argv[2]);
    initialisation(argv[1], rank);
    char* gva = NULL;
    smem_shm_t heap = create(rank, &gva);
    barriers(heap, rank, gva);
    gathers(heap, rank);
    values(heap, rank);
    exits(heap, rank);
    ends(heap);
    puts("good");
    return 0;
}
