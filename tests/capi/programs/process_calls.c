/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of smem.h but those of TLS (tls_calls.c), and what it does. Argument: the URL of a store that this
 * process may run.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <pthread.h>
#include <smem/host/smem_bm.h>

#include "check.h"

static char logged[4096];
static int log_lines;

static void logger(int level, const char* text) {
    ++log_lines;
    snprintf(logged, sizeof logged, "%d %s", level, text);
    CHECK(smem_get_abi_version() == SMEM_ABI_VERSION);  /* it may call the library, */
    CHECK(smem_set_log_level(7) == SMEM_INVALID_PARAM); /* and fail */
}

static void* other_thread(void* unused) {
    CHECK(smem_get_last_err_msg()[0] == '\0'); /* its own, not the first thread's */
    CHECK(smem_get_last_err_code() == 0);
    CHECK(smem_set_log_level(9) == SMEM_INVALID_PARAM);
    return unused;
}

/* The control plane is in this process. */
static int python_is_here(void) { return dlsym(RTLD_DEFAULT, "Py_InitializeFromConfig") != NULL; }

static void begins(void) {
    CHECK(smem_get_abi_version() == 0x00010003u);
    CHECK(!python_is_here());
    CHECK(smem_init(0) == 0 && python_is_here());
    CHECK(smem_init(0) == 0);
}

static void log_and_errors(void) {
    CHECK(strcmp(smem_get_last_err_msg(), "") == 0 && smem_get_last_err_code() == 0);
    CHECK(smem_set_log_level(2) == 0);
    CHECK(smem_set_extern_logger(logger) == 0);
    CHECK_FAILS(smem_set_log_level(6), SMEM_INVALID_PARAM, "log level is 6, expected 0..5");
    CHECK(log_lines == 1 && strncmp(logged, "3 ", 2) == 0 && strstr(logged, "expected 0..5") != NULL);
    const char* sentence = smem_get_last_err_msg();
    CHECK(smem_set_log_level(2) == 0); /* success changes nothing */
    CHECK(strstr(sentence, "expected 0..5") != NULL && smem_get_last_err_msg() == sentence);

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(strstr(sentence, "log level is 6") != NULL);
    const char* taken = smem_get_and_clear_last_err_msg();
    CHECK(strstr(taken, "log level is 6") != NULL);
    CHECK(smem_get_last_err_msg()[0] == '\0' && smem_get_last_err_code() == 0);

    const int lines = log_lines;
    CHECK(smem_set_log_level(5) == 0); /* above what failures are logged with */
    CHECK(smem_create_config_store(NULL) == SMEM_INVALID_PARAM && log_lines == lines);
    CHECK(smem_set_log_level(3) == 0);
    CHECK(smem_create_config_store(NULL) == SMEM_INVALID_PARAM && log_lines == lines + 1);
    CHECK(smem_set_extern_logger(NULL) == 0);
    CHECK(smem_set_log_level(5) == 0); /* the following fail on purpose */
    CHECK(smem_set_log_level(-1) == SMEM_INVALID_PARAM && log_lines == lines + 1);
}

static void stores(const char* url) {
    char text[4096];
    size_t size = sizeof text;
    CHECK_FAILS(smem_config_store_get_cluster_status(text, &size), SMEM_NOT_EXIST, "runs no store");
    CHECK(strcmp(text, "[]") == 0 && size == 3);
    CHECK_FAILS(smem_config_store_get_cluster_status(NULL, NULL), SMEM_INVALID_PARAM, "NULL");

    CHECK_FAILS(smem_create_config_store(NULL), SMEM_INVALID_PARAM, "NULL");
    CHECK_FAILS(smem_create_config_store("udp://127.0.0.1:1"), SMEM_INVALID_PARAM, "udp");
    CHECK(smem_create_config_store(url) == 0);
    CHECK(smem_create_config_store(url, 7) == 0);

    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    config.startConfigStoreServer = false;
    config.initTimeout = 10;
    CHECK(smem_bm_init(url, 5, 0, &config) == 0); /* somebody answers there */
    size = 2;
    CHECK_FAILS(smem_config_store_get_cluster_status(text, &size), SMEM_BUFFER_TOO_SMALL, "the buffer has 2");
    CHECK(size > strlen(url));
    size = 0;
    CHECK(smem_config_store_get_cluster_status(NULL, &size) == SMEM_BUFFER_TOO_SMALL && size > strlen(url));
    size = sizeof text; /* it may have grown by now */
    CHECK(smem_config_store_get_cluster_status(text, &size) == 0 && size == strlen(text) + 1);
    CHECK(strstr(text, url) != NULL && strstr(text, "\"world_size\": 5, \"ranks\": [0]") != NULL);
    smem_bm_uninit(0);

    smem_destroy_config_store(url);
    config.initTimeout = 1;
    CHECK(smem_bm_init(url, 5, 0, &config) == SMEM_TIMEOUT); /* nobody does */
    smem_destroy_config_store(url);
    smem_destroy_config_store(NULL);
    CHECK(smem_get_last_err_code() == SMEM_INVALID_PARAM);
}

static void streams(void) {
    void* stream = NULL;
    CHECK_FAILS(smem_stream_create(NULL), SMEM_INVALID_PARAM, "stream is NULL");
    CHECK(smem_stream_create(&stream) == 0 && stream != NULL);
    CHECK(smem_stream_wait(stream) == 0);
    CHECK(smem_stream_destroy(stream) == 0);
    CHECK_FAILS(smem_stream_destroy(stream), SMEM_INVALID_PARAM, "closed");
    CHECK_FAILS(smem_stream_wait(stream), SMEM_INVALID_PARAM, "closed");
    CHECK_FAILS(smem_stream_wait(NULL), SMEM_INVALID_PARAM, "NULL");
}

/* Everything of this process ends: its stores, its memberships, its handles. And may begin again. */
static void ends(const char* url) {
    char text[4096];
    size_t size = sizeof text;
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    CHECK(smem_create_config_store(url) == 0 && smem_bm_init(url, 5, 0, &config) == 0);
    smem_bm_t pool = smem_bm_create(6, 5, SMEMB_DATA_OP_SDMA, 1u << 20, 0, 0);
    CHECK(pool != NULL && smem_bm_join(pool, 0) == 0);
    smem_uninit();
    CHECK_FAILS(smem_bm_join(pool, 0), SMEM_NOT_INIT, "not initialised");
    CHECK_FAILS(smem_config_store_get_cluster_status(text, &size), SMEM_NOT_EXIST, "runs no store");
    smem_uninit();
    CHECK(smem_bm_init(url, 5, 0, &config) == 0);
    CHECK_FAILS(smem_bm_join(pool, 0), SMEM_INVALID_PARAM, "no handle");
    smem_uninit();
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    begins();
    log_and_errors();
    stores(argv[1]);
    streams();
    ends(argv[1]);
    puts("good");
    return 0;
}
