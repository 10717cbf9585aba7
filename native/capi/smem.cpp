// SPDX-License-Identifier: Apache-2.0
#include <smem/host/smem.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/last_error.h"
#include "base/per_thread.h"
#include "capi/control.h"
#include "capi/objects.h"
#include "capi/outcome.h"

using namespace memfabric;
using namespace memfabric::capi;

namespace {

struct ClearedSentence {
    std::string text;  // what smem_get_and_clear_last_err_msg has shown
};

bridge::Texts texts_of(std::initializer_list<const char*> given) {
    bridge::Texts texts;
    for (const char* const each : given) texts.push_back(each == nullptr ? "" : each);
    return texts;
}

}  // namespace

int32_t smem_init(uint32_t flags) { return code_of(control("init", flags).status); }

void smem_uninit() {
    if (bridge::served() == nullptr) return;  // nothing was ever begun
    code_of(control("uninit").status);
    Pools::process().remove_all();
    Heaps::process().remove_all();
    Engines::process().remove_all();
}

uint32_t smem_get_abi_version() { return SMEM_ABI_VERSION; }

const char* smem_get_last_err_msg() { return last_error().c_str(); }

const char* smem_get_and_clear_last_err_msg() {
    std::string& shown = PerThread<ClearedSentence>::get().text;
    shown = last_error();
    clear_last_error();
    clear_last_code();
    return shown.c_str();
}

int32_t smem_get_last_err_code() { return last_code(); }

int32_t smem_set_log_level(int level) { return code_of(control("set_log_level", level).status); }

int32_t smem_set_extern_logger(void (*func)(int level, const char* msg)) {
    return code_of(control("set_extern_logger", reinterpret_cast<const void*>(func)).status);
}

int32_t smem_create_config_store(const char* storeUrl, uint64_t) {
    if (storeUrl == nullptr) return is_null("smem_create_config_store", "storeUrl");
    return code_of(control("create_config_store", storeUrl).status);
}

void smem_destroy_config_store(const char* storeUrl) {
    if (storeUrl == nullptr) {
        is_null("smem_destroy_config_store", "storeUrl");
        return;
    }
    if (bridge::served() != nullptr) code_of(control("destroy_config_store", storeUrl).status);
}

int32_t smem_config_store_get_cluster_status(char* status, size_t* size) {
    constexpr const char* kCall = "smem_config_store_get_cluster_status";
    if (size == nullptr) return is_null(kCall, "size");
    const size_t room = status == nullptr ? 0 : *size;
    const bridge::Call answer = control("config_store_get_cluster_status");
    if (answer.bytes.empty()) return code_of(answer.status);
    *size = answer.bytes.size() + 1;
    if (room < *size) {
        return failed(
            kCall, fail(Status::BufferTooSmall, "the cluster status has %zu bytes, the buffer has %zu", *size, room));
    }
    std::memcpy(status, answer.bytes.c_str(), *size);
    return code_of(answer.status);
}

int32_t smem_set_conf_store_tls(bool enable, const char* tls_info, const uint32_t tls_info_len) {
    if (!enable) return code_of(control("set_conf_store_tls", false, "").status);
    if (tls_info == nullptr) return is_null("smem_set_conf_store_tls", "tls_info");
    return code_of(
        control("set_conf_store_tls", true, std::string_view(tls_info, strnlen(tls_info, tls_info_len))).status);
}

int32_t smem_set_config_store_tls_key(const char* tls_pk, const uint32_t tls_pk_len, const char* tls_pk_pw,
                                      const uint32_t tls_pk_pw_len, const smem_decrypt_handler h) {
    if (tls_pk == nullptr) return is_null("smem_set_config_store_tls_key", "tls_pk");
    const std::string_view key(tls_pk, strnlen(tls_pk, tls_pk_len));
    const std::string_view passphrase =
        tls_pk_pw == nullptr ? "" : std::string_view(tls_pk_pw, strnlen(tls_pk_pw, tls_pk_pw_len));
    return code_of(control("set_config_store_tls_key", key, passphrase, reinterpret_cast<const void*>(h)).status);
}

int32_t smem_set_ssl_option(const smem_tls_option* tlsOption) {
    if (tlsOption == nullptr) return is_null("smem_set_ssl_option", "tlsOption");
    const smem_tls_option& given = *tlsOption;
    return code_of(control("set_ssl_option", given.enableTls,
                           texts_of({given.tlsCaPath, given.tlsCaFile, given.tlsCert, given.tlsCrlPath,
                                     given.tlsCrlFile, given.tlsPk, given.tlsPkPwd}))
                       .status);
}
