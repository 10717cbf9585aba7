/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of smem.h, and what it does. Argument: the URL of a store that this process may run. */
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

static int decrypt(const char* cipher, size_t cipherLen, char* plain, size_t* plainLen) {
    (void)cipher, (void)cipherLen, (void)plain, (void)plainLen;
    return 1;
}

static void log_and_errors(void) {
    CHECK(smem_init(0) == 0 && smem_init(0) == 0);
    CHECK(smem_get_abi_version() == 0x00010003u);
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
    CHECK(smem_set_extern_logger(NULL) == 0);
    CHECK(smem_set_log_level(5) == 0); /* the following fail on purpose */
    CHECK(smem_set_log_level(-1) == SMEM_INVALID_PARAM && log_lines == lines);
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
    CHECK(smem_bm_init(url, 5, 0, &config) == 0); /* somebody answers there */
    size = 2;
    CHECK_FAILS(smem_config_store_get_cluster_status(text, &size), SMEM_BUFFER_TOO_SMALL, "the buffer has 2");
    const size_t needed = size;
    size = 0;
    CHECK(smem_config_store_get_cluster_status(NULL, &size) == SMEM_BUFFER_TOO_SMALL && size == needed);
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

static void tls(void) {
    CHECK(smem_set_conf_store_tls(false, NULL, 0) == 0);
    CHECK_FAILS(smem_set_conf_store_tls(true, NULL, 0), SMEM_INVALID_PARAM, "tls_info is NULL");
    CHECK(smem_set_conf_store_tls(true, "tlsCert: nowhere", 16) != 0 && smem_get_last_err_msg()[0] != '\0');
    CHECK_FAILS(smem_set_config_store_tls_key(NULL, 0, NULL, 0, NULL), SMEM_INVALID_PARAM, "tls_pk is NULL");
    CHECK(smem_set_config_store_tls_key("no key", 6, "secret", 6, decrypt) != 0);
    smem_tls_option option;
    memset(&option, 0, sizeof option);
    CHECK(smem_set_ssl_option(&option) == 0); /* off */
    CHECK_FAILS(smem_set_ssl_option(NULL), SMEM_INVALID_PARAM, "tlsOption is NULL");
    option.enableTls = true;
    option.tlsCaPath = "/nowhere";
    CHECK(smem_set_ssl_option(&option) != 0 && smem_get_last_err_msg()[0] != '\0');
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

int main(int argc, char** argv) {
    CHECK(argc == 2);
    log_and_errors();
    stores(argv[1]);
    tls();
    streams();
    smem_uninit();
    smem_uninit();
    CHECK(smem_init(0) == 0); /* and on again */
    puts("good");
    return 0;
}
