// SPDX-License-Identifier: Apache-2.0
//
// The library is used before main begins and after it has ended.
#include <smem/host/smem_bm.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.h"

namespace {

class Member {
public:
    Member() {
        smem_bm_config_t config;
        CHECK(smem_set_log_level(5) == 0);
        CHECK(smem_bm_config_init(&config) == 0);
        CHECK(smem_bm_init(std::getenv("STORE_URL"), 1, 0, &config) == 0);
        pool_ = smem_bm_create(0, 1, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
        CHECK(pool_ != nullptr && smem_bm_join(pool_, 0) == 0);
    }
    ~Member() {
        CHECK(put("after main"));
        smem_bm_destroy(pool_);
        smem_bm_uninit(0);
        std::puts("good");
    }

    bool put(const char* text) const {
        auto* const own = static_cast<char*>(smem_bm_ptr(pool_, 0));
        return smem_bm_copy(pool_, text, own, std::strlen(text) + 1, SMEMB_COPY_H2G, 0) == 0 &&
               std::strcmp(own, text) == 0;
    }

private:
    smem_bm_t pool_;
};

const Member member;

}  // namespace

int main() { return member.put("in main") ? 0 : 1; }
