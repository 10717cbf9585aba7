// SPDX-License-Identifier: Apache-2.0
//
// Data calls while memory runs out, at each place where they ask for some: a code and no exception. Arguments: the
// store's URL, the engine's session.
#include <smem/host/smem_bm.h>
#include <smem/host/smem_trans.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "check.h"

namespace {

thread_local int until_none = -1;  // how many more times there is memory; -1: always

void* memory(std::size_t size) {
    if (until_none >= 0 && until_none-- == 0) throw std::bad_alloc();
    void* const block = std::malloc(size);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}

// Until it succeeds; whatever it lacks before, it says so.
template <typename Call>
void starve(Call call) {
    CHECK(call() == 0);
    int refused = 0;
    for (int times = 0;; ++times) {
        until_none = times;
        const int32_t code = call();
        const bool was_refused = until_none == -1;
        until_none = -1;
        if (!was_refused) break;
        CHECK(code == 0 || code == SMEM_MALLOC_FAILED);  // 0: it does without
        refused += code != 0;
    }
    CHECK(refused > 0);
    CHECK(call() == 0);
}

}  // namespace

void* operator new(std::size_t size) { return memory(size); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

int main(int argc, char** argv) {
    CHECK(argc == 3 && smem_set_log_level(5) == 0);
    smem_trans_config_t config;
    CHECK(smem_trans_config_init(&config) == 0 && smem_trans_init(&config) == 0);
    smem_trans_t engine = smem_trans_create(nullptr, argv[2], &config);
    CHECK(engine != nullptr);
    constexpr size_t kPiece = 64;
    auto* const memory = static_cast<char*>(smem_trans_malloc(engine, 4 * kPiece));
    CHECK(memory != nullptr);
    void* here[] = {memory, memory + kPiece};
    void* there[] = {memory + 2 * kPiece, memory + 3 * kPiece};
    const void* read_only[] = {here[0], here[1]};
    size_t sizes[] = {kPiece, kPiece};
    float one = 1;
    float* scale[] = {&one, &one};
    smem_trans_quant_copy_param_t batch = {argv[2], here, there, sizes, scale, nullptr, 2, 1, nullptr, 0, 0};
    starve([&] { return smem_trans_batch_write(engine, read_only, argv[2], there, sizes, 2); });
    starve([&] { return smem_trans_batch_read(engine, there, argv[2], read_only, sizes, 2); });
    starve([&] { return smem_trans_batch_quant_write(engine, &batch); });
    void* stream = nullptr;
    starve([&] {
        const int32_t code = smem_stream_create(&stream);
        return code == 0 ? smem_stream_destroy(stream) : code;
    });
    CHECK(smem_stream_create(&stream) == 0);
    starve([&] { return smem_trans_batch_write_submit(engine, read_only, argv[2], there, sizes, 2, stream); });
    CHECK(smem_stream_wait(stream) == 0);

    smem_bm_config_t pools;
    CHECK(smem_bm_config_init(&pools) == 0 && smem_bm_init(argv[1], 1, 0, &pools) == 0);
    smem_bm_t pool = smem_bm_create(0, 1, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
    CHECK(pool != nullptr && smem_bm_join(pool, 0) == 0);
    auto* const own = static_cast<char*>(smem_bm_ptr(pool, 0));
    void* targets[] = {own, own + kPiece};
    const uint64_t lengths[] = {kPiece, kPiece};
    smem_batch_copy_params copies = {here, targets, lengths, 2, nullptr};
    starve([&] { return smem_bm_copy_batch(pool, &copies, SMEMB_COPY_H2G, 0); });
    std::puts("good");
    return 0;
}
