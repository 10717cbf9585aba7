/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of smem_trans.h, and what it does, between two engines of one process. Arguments: two free addresses
 * ("ip:port").
 */
#include <smem/host/smem_trans.h>

#include "check.h"

enum { SIZE = 4096 };
static char here[SIZE];
static char there[SIZE];
static char again[SIZE];
static const char* peer_that_ended;
static int downs;

static void on_peer_down(const char* peer, void* user_data) {
    if (strcmp(peer, peer_that_ended) == 0) __atomic_fetch_add((int*)user_data, 1, __ATOMIC_SEQ_CST);
    CHECK(smem_get_abi_version() == SMEM_ABI_VERSION);
}

static void initialisation(smem_trans_config_t* config) {
    smem_trans_t nonsense = (smem_trans_t)(uintptr_t)0x12345;
    memset(config, 0xff, sizeof *config);
    CHECK(smem_trans_config_init(config) == 0);
    CHECK(config->role == SMEM_TRANS_SENDER && config->initTimeout == 120 && config->deviceId == UINT32_MAX);
    CHECK(config->flags == 0 && config->dataOpType == SMEMB_DATA_OP_SDMA && config->nic[0] == '\0');
    CHECK(!config->hcomTlsConfig.tlsEnable);
    CHECK_FAILS(smem_trans_config_init(NULL), SMEM_INVALID_PARAM, "config is NULL");
    CHECK_FAILS(smem_trans_read(nonsense, here, "127.0.0.1:1", there, 1), SMEM_NOT_INIT, "not initialised");
    CHECK_FAILS(smem_trans_read(NULL, here, "127.0.0.1:1", there, 1), SMEM_INVALID_PARAM, "handle is NULL");
    CHECK_REFUSED(smem_trans_create(NULL, "127.0.0.1", config), NULL, SMEM_NOT_INIT, "smem_trans_init");
    CHECK_FAILS(smem_trans_init(NULL), SMEM_INVALID_PARAM, "config is NULL");
    config->role = SMEM_TRANS_BUTT;
    CHECK_FAILS(smem_trans_init(config), SMEM_INVALID_PARAM, "role is 4");
    config->role = SMEM_TRANS_BOTH;
    CHECK(smem_trans_init(config) == 0 && smem_trans_init(config) == 0);

    CHECK_REFUSED(smem_trans_create(NULL, NULL, config), NULL, SMEM_INVALID_PARAM, "uniqueId is NULL");
    CHECK_REFUSED(smem_trans_create(NULL, "127.0.0.1", NULL), NULL, SMEM_INVALID_PARAM, "config is NULL");
    CHECK_REFUSED(smem_trans_create(NULL, "127.0.0.1;5", config), NULL, SMEM_INVALID_PARAM, "127.0.0.1;5");
    memset(config->nic, 'x', sizeof config->nic);
    CHECK_REFUSED(smem_trans_create(NULL, "127.0.0.1", config), NULL, SMEM_INVALID_PARAM, "nic has no end");
    memset(config->nic, 0, sizeof config->nic);
    config->hcomTlsConfig.tlsEnable = true;
    CHECK_REFUSED(smem_trans_create(NULL, "127.0.0.1", config), NULL, SMEM_INVALID_PARAM, "TLS: caPath must be given");
    config->hcomTlsConfig.tlsEnable = false;
    CHECK_FAILS(smem_trans_write(nonsense, here, "127.0.0.1:1", there, 1), SMEM_INVALID_PARAM, "no handle");
}

static void moves(smem_trans_t source, smem_trans_t target, const char* session) {
    for (int i = 0; i < SIZE; ++i) here[i] = (char)(i * 3 + i / 256 + 1); /* no two parts of it are the same */
    CHECK_FAILS(smem_trans_write(source, here, session, there, SIZE), SMEM_INVALID_PARAM, "registered");
    CHECK(there[0] == 0);
    CHECK(smem_trans_register_mem(target, there, SIZE, 0) == 0);
    CHECK_FAILS(smem_trans_register_mem(target, there, 0, 0), SMEM_INVALID_PARAM, "0");
    CHECK(smem_trans_write(source, here, session, there, SIZE) == 0 && memcmp(here, there, SIZE) == 0);
    CHECK(smem_trans_read(source, again, session, there, SIZE, 9) == 0 && memcmp(here, again, SIZE) == 0);
    CHECK_FAILS(smem_trans_write(source, here, NULL, there, SIZE), SMEM_INVALID_PARAM, "remoteUniqueId is NULL");

    const void* sources[2] = {here, here + 1024};
    void* targets[2] = {there + 1024, there};
    const void* remote[2] = {there, there + 1024};
    void* local[2] = {again + 1024, again};
    size_t sizes[2] = {1024, 1024};
    memset(again, 0, SIZE);
    CHECK(smem_trans_batch_write(source, sources, session, targets, sizes, 2) == 0);
    CHECK(memcmp(there, here + 1024, 1024) == 0 && memcmp(there + 1024, here, 1024) == 0);
    CHECK(smem_trans_batch_read(source, local, session, remote, sizes, 2, 0) == 0 && memcmp(again, here, 2048) == 0);
    CHECK_FAILS(smem_trans_batch_read(source, NULL, session, remote, sizes, 2), SMEM_INVALID_PARAM, "NULL");
    sizes[1] = 0;
    CHECK_FAILS(smem_trans_batch_write(source, sources, session, targets, sizes, 2), SMEM_INVALID_PARAM, "");
    sizes[1] = 1024;

    void* stream = NULL;
    CHECK(smem_stream_create(&stream) == 0);
    CHECK(smem_trans_write_submit(source, here, session, there, SIZE, stream) == 0);
    memset(again, 0, SIZE);
    CHECK(smem_trans_read_submit(source, again, session, there, SIZE, stream, 0) == 0);
    CHECK(smem_stream_wait(stream) == 0 && memcmp(here, there, SIZE) == 0 && memcmp(here, again, SIZE) == 0);
    memset(again, 0, SIZE);
    CHECK(smem_trans_batch_write_submit(source, sources, session, targets, sizes, 2, stream) == 0);
    CHECK(smem_trans_batch_read_submit(source, local, session, remote, sizes, 2, stream, 0) == 0);
    CHECK(smem_stream_wait(stream) == 0 && memcmp(there, here + 1024, 1024) == 0 && memcmp(again, here, 2048) == 0);
    CHECK_FAILS(smem_trans_write_submit(source, here, session, there, SIZE, NULL), SMEM_INVALID_PARAM, "stream");
    CHECK(smem_trans_write_submit(source, here, session, again, SIZE, stream) == 0); /* which is not registered */
    CHECK_FAILS(smem_stream_wait(stream), SMEM_INVALID_PARAM, "registered");
    /* With and without flags, which nobody looks at. */
    memset(there, 0, SIZE);
    CHECK(smem_trans_write(source, here, session, there, SIZE, 9) == 0 && memcmp(here, there, SIZE) == 0);
    memset(again, 0, SIZE);
    CHECK(smem_trans_read(source, again, session, there, SIZE) == 0 && memcmp(here, again, SIZE) == 0);
    CHECK(smem_trans_batch_write(source, sources, session, targets, sizes, 2, 9) == 0);
    CHECK(memcmp(there, here + 1024, 1024) == 0 && memcmp(there + 1024, here, 1024) == 0);
    memset(again, 0, SIZE);
    CHECK(smem_trans_batch_read(source, local, session, remote, sizes, 2) == 0 && memcmp(again, here, 2048) == 0);
    CHECK(smem_trans_write_submit(source, here, session, there, SIZE, stream, 9) == 0);
    CHECK(smem_trans_read_submit(source, again + 2048, session, there, 2048, stream) == 0);
    CHECK(smem_stream_wait(stream) == 0 && memcmp(there, here, SIZE) == 0 && memcmp(again + 2048, here, 2048) == 0);
    memset(again, 0, SIZE);
    CHECK(smem_trans_batch_write_submit(source, sources, session, targets, sizes, 2, stream, 9) == 0);
    CHECK(smem_trans_batch_read_submit(source, local, session, remote, sizes, 2, stream) == 0);
    CHECK(smem_stream_wait(stream) == 0 && memcmp(there, here + 1024, 1024) == 0 && memcmp(again, here, 2048) == 0);
    CHECK(smem_stream_destroy(stream) == 0);
    CHECK(smem_trans_deregister_mem(target, there) == 0);
    CHECK_FAILS(smem_trans_deregister_mem(target, there), SMEM_NOT_EXIST, "registered");
    CHECK_FAILS(smem_trans_read(source, again, session, there, 1), SMEM_INVALID_PARAM, "registered");
}

static void quantised(smem_trans_t source, smem_trans_t target, const char* session) {
    uint16_t numbers[4] = {0x3f80, 0x4000, 0xc000, 0x4300}; /* bfloat16: 1, 2, -2, 128 */
    int8_t* bytes = (int8_t*)smem_trans_malloc(target, 64);
    CHECK(bytes != NULL);
    CHECK_REFUSED(smem_trans_malloc(target, 0), NULL, SMEM_INVALID_PARAM, "0");
    float scales[1] = {10};
    float offsets[1] = {1};
    void* local[1] = {numbers};
    void* remote[1] = {bytes};
    size_t sizes[1] = {sizeof numbers};
    float* scale[1] = {scales};
    float* offset[1] = {offsets};
    smem_trans_quant_copy_param_t params = {session, local, remote, sizes, scale, offset, 1, 1, NULL, 0, 0};
    CHECK(smem_trans_batch_quant_write(source, &params) == 0);
    CHECK(bytes[0] == 11 && bytes[1] == 21 && bytes[2] == -19 && bytes[3] == 127);
    params.offset = NULL;
    CHECK(smem_trans_batch_quant_write(source, &params) == 0 && bytes[0] == 10);
    params.inputType = 2;
    CHECK_FAILS(smem_trans_batch_quant_write(source, &params), SMEM_INVALID_PARAM, "2");
    params.inputType = 0;
    params.batchSize = UINT32_MAX; /* which is found out before that many are read */
    CHECK_FAILS(smem_trans_batch_quant_write(source, &params), SMEM_INVALID_PARAM, "4294967295 pieces");
    params.batchSize = 0;
    CHECK_FAILS(smem_trans_batch_quant_write(source, &params), SMEM_INVALID_PARAM, "0 pieces");
    CHECK_FAILS(smem_trans_batch_quant_write(source, NULL), SMEM_INVALID_PARAM, "params is NULL");
    CHECK(smem_trans_free(target, bytes) == 0);
    CHECK_FAILS(smem_trans_free(target, bytes), SMEM_NOT_EXIST, "");
    CHECK_FAILS(smem_trans_free(target, NULL), SMEM_INVALID_PARAM, "address is NULL");
    CHECK_FAILS(smem_trans_deregister_mem(target, NULL), SMEM_INVALID_PARAM, "address is NULL");
    CHECK_FAILS(smem_trans_register_mem(target, NULL, 8, 0), SMEM_INVALID_PARAM, "address is NULL");
}

static void many_registrations(smem_trans_t target) {
    void* addresses[2] = {here, there};
    size_t sizes[2] = {SIZE, SIZE};
    CHECK(smem_trans_batch_register_mem(target, addresses, sizes, 2, 0) == 0);
    CHECK(smem_trans_deregister_mem(target, here) == 0 && smem_trans_deregister_mem(target, there) == 0);
    sizes[1] = 0; /* all or none */
    CHECK_FAILS(smem_trans_batch_register_mem(target, addresses, sizes, 2, 0), SMEM_INVALID_PARAM, "0");
    CHECK_FAILS(smem_trans_deregister_mem(target, here), SMEM_NOT_EXIST, "registered");
    sizes[1] = SIZE;
    CHECK_FAILS(smem_trans_batch_register_mem(target, addresses, sizes, UINT32_MAX, 0), SMEM_NO_RESOURCES, "limit");
    CHECK_FAILS(smem_trans_batch_register_mem(target, NULL, sizes, 2, 0), SMEM_INVALID_PARAM, "addresses is NULL");
}

static void ends(smem_trans_t source, smem_trans_t target) {
    const char* const session = peer_that_ended;
    CHECK(smem_trans_set_peer_down_callback(source, on_peer_down, &downs) == 0);
    smem_trans_destroy(target, 0);
    CHECK_SOON(__atomic_load_n(&downs, __ATOMIC_SEQ_CST) == 1);
    CHECK_FAILS(smem_trans_write(source, here, session, there, 1), SMEM_NOT_CONNECTED, session);
    CHECK_FAILS(smem_trans_register_mem(target, there, SIZE, 0), SMEM_INVALID_PARAM, "no handle");
    smem_trans_destroy(target, 0);
    CHECK(smem_get_last_err_code() == SMEM_INVALID_PARAM);
    CHECK(smem_trans_set_peer_down_callback(source, NULL, NULL) == 0);
    smem_trans_uninit(0);
    CHECK_FAILS(smem_trans_write(source, here, session, there, 1), SMEM_NOT_INIT, "not initialised");
}

int main(int argc, char** argv) {
    CHECK(argc == 3 && smem_set_log_level(5) == 0);
    smem_trans_config_t config;
    initialisation(&config);
    peer_that_ended = argv[2];
    smem_trans_t source = smem_trans_create(NULL, argv[1], &config);
    smem_trans_t target = smem_trans_create("tcp://127.0.0.1", argv[2], &config);
    CHECK(source != NULL && target != NULL);
    CHECK_REFUSED(smem_trans_create(NULL, "\xff", &config), NULL, SMEM_INVALID_PARAM, "not UTF-8");
    CHECK_REFUSED(smem_trans_create(NULL, argv[2], &config), NULL, SMEM_RES_IN_USE, strchr(argv[2], ':') + 1);
    moves(source, target, argv[2]);
    quantised(source, target, argv[2]);
    many_registrations(target);
    ends(source, target);
    puts("good");
    return 0;
}
