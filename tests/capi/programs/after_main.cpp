// SPDX-License-Identifier: Apache-2.0
//
// The library is used where a thread's own objects are gone: in destructors of static objects, in what atexit runs, and
// in destructors of pthread keys. STORE_URL is in the environment.
#include <pthread.h>
#include <smem/host/smem_bm.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "check.h"

namespace {

class Pool {
public:
    void make(uint32_t id) {
        handle_ = smem_bm_create(id, 1, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
        CHECK(handle_ != nullptr && smem_bm_join(handle_, 0) == 0);
    }
    void put(const char* text) const {
        auto* const own = static_cast<char*>(smem_bm_ptr(handle_, 0));
        CHECK(own != nullptr && smem_bm_copy(handle_, text, own, std::strlen(text) + 1, SMEMB_COPY_H2G, 0) == 0);
        CHECK(std::strcmp(own, text) == 0);
    }
    void destroy() { smem_bm_destroy(handle_); }

private:
    smem_bm_t handle_ = nullptr;
};

Pool pools[2];

void fail_and_say() {
    CHECK_FAILS(smem_bm_join(nullptr, 0), SMEM_INVALID_PARAM, "handle is NULL");
    (void)smem_get_and_clear_last_err_msg();
    CHECK(*smem_get_last_err_msg() == '\0');
}

struct Last {
    Last() {  // the library is there before this object, and so ends after it
        smem_bm_config_t config;
        CHECK(smem_set_log_level(5) == 0);
        CHECK(smem_bm_config_init(&config) == 0);
        CHECK(smem_bm_init(std::getenv("STORE_URL"), 1, 0, &config) == 0);
        for (uint32_t id = 0; id < 2; ++id) pools[id].make(id);
    }
    ~Last() {
        for (int round = 0; round < 3; ++round) {
            for (const Pool& pool : pools) pool.put("after main");
        }
        fail_and_say();
        for (Pool& pool : pools) pool.destroy();
        smem_bm_uninit(0);
        std::puts("good");
    }
};

const Last last;

pthread_key_t key;

void be_a_key(void* rounds_left) {
    const auto left = reinterpret_cast<std::uintptr_t>(rounds_left);
    for (const Pool& pool : pools) pool.put("as a thread ends");
    fail_and_say();
    if (left > 1) pthread_setspecific(key, reinterpret_cast<void*>(left - 1));
}

}  // namespace

int main() {
    CHECK(pthread_key_create(&key, be_a_key) == 0);
    std::thread([] {
        pools[0].put("in a thread");
        fail_and_say();
        pthread_setspecific(key, reinterpret_cast<void*>(3));
    }).join();
    for (const Pool& pool : pools) pool.put("in main");
    fail_and_say();
    return std::atexit(fail_and_say);
}
