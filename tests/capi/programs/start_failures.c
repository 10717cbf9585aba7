/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every entry point when the control plane cannot be started: none says 0, none crashes, and all say why. Argument:
 * words of the sentence.
 */
#include <smem/host/smem_bm.h>
#include <smem/host/smem_shm.h>
#include <smem/host/smem_trans.h>

#include "check.h"

static const char* words;
static char bytes[64];
static void* const handle = bytes; /* not NULL, and no handle */

static void logger(int level, const char* text) { (void)level, (void)text; }
static void on_exit_of_all(int status) { (void)status; }
static void on_event(smem_bm_t pool, uint32_t rank, smem_bm_group_event_t event, void* context) {
    (void)pool, (void)rank, (void)event, (void)context;
}
static void on_down(const char* peer, void* context) { (void)peer, (void)context; }

#define FAILS(call) CHECK_FAILS(call, SMEM_ERROR, words)
#define SAYS_WHY(call) CHECK_REFUSED(((void)(call), 0), 0, SMEM_ERROR, words)
#define REFUSED(call, answer) CHECK_REFUSED(call, answer, SMEM_ERROR, words)

static void process(void) {
    char text[16];
    size_t size = sizeof text;
    void* stream = NULL;
    smem_tls_option option;
    memset(&option, 0, sizeof option);
    FAILS(smem_init(0));
    FAILS(smem_set_log_level(2));
    FAILS(smem_set_extern_logger(logger));
    FAILS(smem_create_config_store("tcp://127.0.0.1:1"));
    FAILS(smem_config_store_get_cluster_status(text, &size));
    FAILS(smem_set_conf_store_tls(false, NULL, 0));
    FAILS(smem_set_config_store_tls_key("key", 3, NULL, 0, NULL));
    FAILS(smem_set_ssl_option(&option));
    FAILS(smem_stream_create(&stream));
    CHECK_FAILS(smem_stream_wait(handle), SMEM_INVALID_PARAM, "never was one");
    CHECK_FAILS(smem_stream_destroy(handle), SMEM_INVALID_PARAM, "never was one");
    (void)smem_get_and_clear_last_err_msg();
    smem_destroy_config_store("tcp://127.0.0.1:1"); /* there is none */
    smem_uninit();
    smem_bm_uninit(0);
    smem_shm_uninit(0);
    smem_trans_uninit(0);
    CHECK(smem_get_last_err_code() == 0); /* nothing has begun, so there is nothing to end */
    CHECK(smem_get_abi_version() == SMEM_ABI_VERSION);
}

static void big_memory(void) {
    smem_bm_config_t config;
    memset(&config, 0, sizeof config);
    smem_bm_create_option_t option;
    memset(&option, 0, sizeof option);
    smem_copy_params params = {bytes, bytes, 1, NULL};
    void* address = bytes;
    uint64_t size = 1;
    smem_batch_copy_params batch = {&address, &address, &size, 1, NULL};
    FAILS(smem_bm_config_init(&config));
    FAILS(smem_bm_init("tcp://127.0.0.1:1", 1, 0, &config));
    FAILS(smem_bm_update_store_url("tcp://127.0.0.1:1"));
    REFUSED(smem_bm_get_rank_id(), UINT32_MAX);
    REFUSED(smem_bm_create(0, 1, SMEMB_DATA_OP_SDMA, 1, 0, 0), NULL);
    REFUSED(smem_bm_create2(0, &option), NULL);
    SAYS_WHY(smem_bm_destroy(handle));
    FAILS(smem_bm_join(handle, 0));
    FAILS(smem_bm_join(handle, 0, &address));
    FAILS(smem_bm_leave(handle, 0));
    FAILS(smem_bm_extend_local_mem(handle, SMEM_MEM_TYPE_HOST, 1));
    FAILS(smem_bm_set_group_event_handler(handle, on_event, NULL));
    REFUSED(smem_bm_get_local_mem_size_by_mem_type(handle, SMEM_MEM_TYPE_HOST), 0);
    REFUSED(smem_bm_ptr_by_mem_type(handle, SMEM_MEM_TYPE_HOST, 0), NULL);
    REFUSED(smem_bm_get_local_mem_size(handle), 0);
    REFUSED(smem_bm_ptr(handle, 0), NULL);
    REFUSED(smem_bm_get_rank_id_by_gva(handle, bytes), UINT32_MAX);
    FAILS(smem_bm_gva_to_va(handle, bytes, SMEM_MEM_TYPE_LOCAL_HOST, &address));
    FAILS(smem_bm_register_user_mem(handle, 1, 1));
    FAILS(smem_bm_unregister_user_mem(handle, 1));
    FAILS(smem_bm_copy(handle, &params, SMEMB_COPY_AUTO, 0));
    FAILS(smem_bm_copy_batch(handle, &batch, SMEMB_COPY_AUTO, 0));
    FAILS(smem_bm_copy_2d(handle, bytes, 1, bytes, 1, 1, 1, SMEMB_COPY_AUTO, 0));
    FAILS(smem_bm_wait(handle));
}

static void share_memory(void) {
    smem_shm_config_t config;
    memset(&config, 0, sizeof config);
    void* gva = NULL;
    uint32_t reach = 0;
    int32_t value = 0;
    FAILS(smem_shm_config_init(&config));
    FAILS(smem_shm_init("tcp://127.0.0.1:1", 1, 0, 0, &config));
    REFUSED(smem_shm_query_support_data_operation(), 0);
    REFUSED(smem_shm_create(0, 1, 0, 1, SMEMS_DATA_OP_MTE, 0, &gva), NULL);
    FAILS(smem_shm_destroy(handle, 0));
    FAILS(smem_shm_set_extra_context(handle, bytes, 1));
    REFUSED(smem_shm_get_global_rank(handle), UINT32_MAX);
    REFUSED(smem_shm_get_global_rank_size(handle), UINT32_MAX);
    REFUSED(smem_shm_get_symmetric_size(handle), 0);
    FAILS(smem_shm_topology_can_reach(handle, 0, &reach));
    FAILS(smem_shm_control_barrier(handle));
    FAILS(smem_shm_control_allgather(handle, bytes, 1, bytes, 1));
    FAILS(smem_shm_subgroup_barrier(handle, "key", 1, 0));
    FAILS(smem_shm_subgroup_allgather(handle, "key", 1, 0, bytes, 1, bytes, 1));
    FAILS(smem_shm_atomic_alloc_value(handle, 1, &value));
    FAILS(smem_shm_atomic_release_value(handle, 0));
    FAILS(smem_shm_register_exit(handle, on_exit_of_all));
    SAYS_WHY(smem_shm_global_exit(handle, 1));
}

static void transfer(void) {
    smem_trans_config_t config;
    memset(&config, 0, sizeof config);
    void* address = bytes;
    const void* source = bytes;
    size_t size = 1;
    float* scale = NULL;
    smem_trans_quant_copy_param_t params = {"127.0.0.1:1", &address, &address, &size, &scale, NULL, 1, 1, NULL, 0, 0};
    const char* const peer = "127.0.0.1:1";
    FAILS(smem_trans_config_init(&config));
    FAILS(smem_trans_init(&config));
    REFUSED(smem_trans_create(NULL, peer, &config), NULL);
    SAYS_WHY(smem_trans_destroy(handle, 0));
    FAILS(smem_trans_set_peer_down_callback(handle, on_down, NULL));
    FAILS(smem_trans_register_mem(handle, bytes, 1, 0));
    FAILS(smem_trans_batch_register_mem(handle, &address, &size, 1, 0));
    FAILS(smem_trans_deregister_mem(handle, bytes));
    REFUSED(smem_trans_malloc(handle, 1), NULL);
    FAILS(smem_trans_free(handle, bytes));
    FAILS(smem_trans_read(handle, bytes, peer, bytes, 1));
    FAILS(smem_trans_write(handle, bytes, peer, bytes, 1));
    FAILS(smem_trans_batch_read(handle, &address, peer, &source, &size, 1));
    FAILS(smem_trans_batch_write(handle, &source, peer, &address, &size, 1));
    FAILS(smem_trans_read_submit(handle, bytes, peer, bytes, 1, bytes));
    FAILS(smem_trans_write_submit(handle, bytes, peer, bytes, 1, bytes));
    FAILS(smem_trans_batch_read_submit(handle, &address, peer, &source, &size, 1, bytes));
    FAILS(smem_trans_batch_write_submit(handle, &source, peer, &address, &size, 1, bytes));
    FAILS(smem_trans_batch_quant_write(handle, &params));
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    words = argv[1];
    process();
    big_memory();
    share_memory();
    transfer();
    puts(smem_get_last_err_msg());
    return 0;
}
