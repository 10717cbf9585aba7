/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Becomes a member over TLS, by the struct of the newer documents or by the option of the first release, and says what
 * came of it: tls_member <url> <struct|option|none> <authorities> <certificate> <key>
 */
#include <smem/host/smem_bm.h>

#include "check.h"

static void fill(char* field, const char* text) {
    CHECK(strlen(text) < SMEM_TLS_PATH_SIZE);
    strcpy(field, text);
}

/* The option has the folder and the file of the authorities apart. */
static int32_t set_option(char* authorities, const char* certificate, const char* key) {
    char* name = strrchr(authorities, '/');
    CHECK(name != NULL);
    *name++ = '\0';
    smem_tls_option option;
    memset(&option, 0, sizeof option);
    option.enableTls = true;
    option.tlsCaPath = authorities;
    option.tlsCaFile = name;
    option.tlsCert = certificate;
    option.tlsPk = key;
    return smem_set_ssl_option(&option);
}

int main(int count, char** words) {
    CHECK(count == 6);
    CHECK(smem_init(0) == 0);
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    config.initTimeout = 20;
    config.startConfigStoreServer = false;
    int32_t code = 0;
    if (strcmp(words[2], "struct") == 0) {
        config.storeTlsConfig.tlsEnable = true;
        fill(config.storeTlsConfig.caPath, words[3]);
        fill(config.storeTlsConfig.certPath, words[4]);
        fill(config.storeTlsConfig.keyPath, words[5]);
    } else if (strcmp(words[2], "option") == 0) {
        code = set_option(words[3], words[4], words[5]);
    }
    if (code == 0) code = smem_bm_init(words[1], 4, 0, &config);
    printf("%d %s\n", code, code == 0 ? "" : smem_get_last_err_msg());
    smem_uninit();
    return 0;
}
