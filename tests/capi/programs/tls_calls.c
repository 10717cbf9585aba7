/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way to configure TLS, and what it does, towards a store that speaks nothing else:
 * tls_calls <url> <folder of authorities> <file in it> <list of the revoked> <certificate> <encrypted key>
 *           <file with its passphrase, backwards> <library that turns it round>
 */
#include <smem/host/smem_bm.h>

#include "check.h"

static const char *url, *folder, *file, *revoked, *certificate, *key, *backwards, *decrypter;
static char key_text[8192];
static char cipher[256];
static char passphrase[256];
static int decryptions;

static void read_file(const char* path, char* text, size_t room) {
    FILE* const stream = fopen(path, "r");
    CHECK(stream != NULL);
    const size_t size = fread(text, 1, room - 1, stream);
    CHECK(size < room - 1 && ferror(stream) == 0);
    text[size] = '\0';
    fclose(stream);
}

static int decrypt(const char* given, size_t length, char* plain, size_t* plain_length) {
    CHECK(length == strlen(cipher) && memcmp(given, cipher, length) == 0 && *plain_length > length);
    for (size_t i = 0; i < length; ++i) plain[i] = given[length - 1 - i];
    *plain_length = length;
    ++decryptions;
    return 0;
}

static int refuse_to_decrypt(const char* given, size_t length, char* plain, size_t* plain_length) {
    (void)given, (void)length, (void)plain, (void)plain_length;
    return 7;
}

/* What came of becoming a member; nothing is left of it. */
static int32_t enter(const smem_tls_config* tls) {
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0);
    config.startConfigStoreServer = false;
    config.initTimeout = 20;
    if (tls != NULL) config.storeTlsConfig = *tls;
    const int32_t code = smem_bm_init(url, 4, 0, &config);
    if (code == 0) CHECK(smem_bm_get_rank_id() == 0);
    smem_bm_uninit(0);
    return code;
}

static void must_be_off(void) { CHECK_FAILS(enter(NULL), SMEM_NOT_CONNECTED, "TLS"); }

static uint32_t length_of(const char* text) { return (uint32_t)strlen(text); }

static void by_text(void) {
    char info[4096];
    const int length = snprintf(info, sizeof info, "tlsCaPath: %s; tlsCaFile: %s; tlsCert: %s; tlsPk: %s; tlsPkPwd: %s",
                                folder, file, certificate, key, passphrase);
    CHECK(length > 0 && length < (int)sizeof info);
    CHECK_FAILS(smem_set_conf_store_tls(true, NULL, 0), SMEM_INVALID_PARAM, "tls_info is NULL");
    CHECK_FAILS(smem_set_conf_store_tls(true, "tlsCert: nowhere", 16), SMEM_INVALID_PARAM, "tlsCaPath");
    CHECK_FAILS(smem_set_conf_store_tls(true, info, 20), SMEM_INVALID_PARAM, ""); /* no more of it counts */
    must_be_off();
    CHECK(smem_set_conf_store_tls(true, info, (uint32_t)length) == 0 && enter(NULL) == 0);
    CHECK(smem_set_conf_store_tls(false, NULL, 0) == 0);
    must_be_off();
}

static void with_key(void) {
    char info[4096];
    const int length =
        snprintf(info, sizeof info, "tlsCaPath: %s; tlsCaFile: %s; tlsCert: %s", folder, file, certificate);
    CHECK(smem_set_conf_store_tls(true, info, (uint32_t)length) == 0);
    CHECK_FAILS(enter(NULL), SMEM_INVALID_PARAM, "no private key");
    CHECK_FAILS(smem_set_config_store_tls_key(NULL, 0, NULL, 0, NULL), SMEM_INVALID_PARAM, "tls_pk is NULL");
    CHECK_FAILS(smem_set_config_store_tls_key("no key", 6, NULL, 0, NULL), SMEM_INVALID_PARAM, "no PEM key");
    CHECK_FAILS(smem_set_config_store_tls_key(key_text, length_of(key_text), cipher, length_of(cipher), NULL),
                SMEM_INVALID_PARAM, "its passphrase is another");
    CHECK_FAILS(
        smem_set_config_store_tls_key(key_text, length_of(key_text), cipher, length_of(cipher), refuse_to_decrypt),
        SMEM_INVALID_PARAM, "");
    CHECK(smem_set_config_store_tls_key(key_text, length_of(key_text), cipher, length_of(cipher), decrypt) == 0);
    CHECK(decryptions > 0 && enter(NULL) == 0);
    CHECK(smem_set_conf_store_tls(false, NULL, 0) == 0);
}

/* The first release's. */
static void by_option(void) {
    smem_tls_option option;
    memset(&option, 0, sizeof option);
    CHECK_FAILS(smem_set_ssl_option(NULL), SMEM_INVALID_PARAM, "tlsOption is NULL");
    option.enableTls = true;
    option.tlsCaPath = "/nowhere";
    CHECK_FAILS(smem_set_ssl_option(&option), SMEM_INVALID_PARAM, "tlsCaFile");
    option.tlsCaPath = folder;
    option.tlsCaFile = file;
    option.tlsCert = certificate;
    option.tlsPk = key;
    option.tlsPkPwd = passphrase;
    must_be_off();
    CHECK(smem_set_ssl_option(&option) == 0 && enter(NULL) == 0);
    option.enableTls = false;
    CHECK(smem_set_ssl_option(&option) == 0);
    must_be_off();
}

static void fill(char* field, const char* text) {
    CHECK(strlen(text) < SMEM_TLS_PATH_SIZE);
    strcpy(field, text);
}

/* All fields but packagePath, which nobody reads. */
static void by_struct(void) {
    smem_tls_config tls;
    memset(&tls, 0, sizeof tls);
    tls.tlsEnable = true;
    CHECK_FAILS(enter(&tls), SMEM_INVALID_PARAM, "caPath must be given");
    fill(tls.caPath, folder);
    CHECK_FAILS(enter(&tls), SMEM_INVALID_PARAM, "certPath must be given");
    fill(tls.certPath, certificate);
    CHECK_FAILS(enter(&tls), SMEM_INVALID_PARAM, "keyPath must be given");
    fill(tls.keyPath, key);
    fill(tls.decrypterLibPath, decrypter);
    CHECK_FAILS(enter(&tls), SMEM_INVALID_PARAM, "without keyPassPath");
    fill(tls.keyPassPath, backwards);
    fill(tls.packagePath, "/nowhere");
    fill(tls.crlPath, "/nowhere.crl");
    CHECK_FAILS(enter(&tls), SMEM_INVALID_PARAM, "/nowhere.crl");
    fill(tls.crlPath, revoked);
    CHECK(enter(&tls) == 0);
    memset(tls.caPath, 'x', sizeof tls.caPath);
    CHECK_FAILS(enter(&tls), SMEM_INVALID_PARAM, "storeTlsConfig has no end");
}

int main(int count, char** words) {
    CHECK(count == 9);
    url = words[1], folder = words[2], file = words[3], revoked = words[4], certificate = words[5], key = words[6];
    backwards = words[7], decrypter = words[8];
    read_file(key, key_text, sizeof key_text);
    read_file(backwards, cipher, sizeof cipher);
    size_t length = strlen(cipher);
    for (size_t i = 0; i < length; ++i) passphrase[i] = cipher[length - 1 - i];
    CHECK(smem_set_log_level(5) == 0);
    by_text();
    with_key();
    by_option();
    by_struct();
    puts("good");
    return 0;
}
