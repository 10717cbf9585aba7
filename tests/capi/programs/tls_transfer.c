/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a sentence into another process's memory over an encrypted connection, and says what came of it:
 * tls_transfer <session> <address> <authorities> <certificate> <key>
 */
#include <smem/host/smem_trans.h>

#include "check.h"

static void fill(char* field, const char* text) {
    CHECK(strlen(text) < SMEM_TLS_PATH_SIZE);
    strcpy(field, text);
}

int main(int count, char** words) {
    CHECK(count == 6);
    smem_trans_config_t config;
    CHECK(smem_trans_config_init(&config) == 0);
    CHECK(smem_trans_init(&config) == 0);
    config.dataOpType = SMEMB_DATA_OP_HOST_TCP; /* also on one host */
    config.hcomTlsConfig.tlsEnable = true;
    fill(config.hcomTlsConfig.caPath, words[3]);
    fill(config.hcomTlsConfig.certPath, words[4]);
    fill(config.hcomTlsConfig.keyPath, words[5]);
    smem_trans_t engine = smem_trans_create(NULL, "127.0.0.1", &config);
    CHECK(engine != NULL);
    char sentence[] = "written by C with TLS";
    void* there = (void*)(uintptr_t)strtoull(words[2], NULL, 10);
    const int32_t code = smem_trans_write(engine, sentence, words[1], there, sizeof sentence);
    printf("%d %s\n", code, code == 0 ? "" : smem_get_last_err_msg());
    smem_trans_destroy(engine, 0);
    smem_trans_uninit(0);
    return 0;
}
