// SPDX-License-Identifier: Apache-2.0
//
// x86-64: MOVNT stores of 32 bytes (AVX2) or 16 bytes (SSE2, which every x86-64 has). There is no AVX-512 kernel: two
// neighbouring 32-byte stores fill one write-combining line just as one 64-byte store does, and memory is the limit.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "base/cpu.h"
#include "copy/kernels.h"

namespace memfabric {
namespace {

constexpr std::size_t kStepBytes = 2 * kLineBytes;
// How far ahead of the loads the source is prefetched: 256 to 512 bytes gained 2-10 % over none on Zen 3, 1 KiB and
// more lost. The last kPrefetchBytes of a range are copied without, so that short pieces fetch nothing beyond their
// end.
constexpr std::size_t kPrefetchBytes = 512;
// Shorter ranges gain nothing from streaming: the partial lines at both ends are most of them.
constexpr std::size_t kSmallestStreamBytes = 4 * kStepBytes;

// Copies up to the target's next line boundary, so that the loops below store whole lines only: a partly written line
// leaves the write-combining buffer as a slow read-modify-write.
std::size_t copy_to_line_boundary(std::byte* target, const std::byte* source) noexcept {
    const std::size_t head = (kLineBytes - reinterpret_cast<std::uintptr_t>(target) % kLineBytes) % kLineBytes;
    std::memcpy(target, source, head);
    return head;
}

inline void prefetch_ahead(const std::byte* source) noexcept {
    _mm_prefetch(reinterpret_cast<const char*>(source + kPrefetchBytes), _MM_HINT_NTA);
    _mm_prefetch(reinterpret_cast<const char*>(source + kPrefetchBytes + kLineBytes), _MM_HINT_NTA);
}

__attribute__((target("avx2"), always_inline)) inline void stream_step_avx2(std::byte* target,
                                                                            const std::byte* source) noexcept {
    const auto* from = reinterpret_cast<const __m256i*>(source);
    auto* to = reinterpret_cast<__m256i*>(target);
    const __m256i a = _mm256_loadu_si256(from);
    const __m256i b = _mm256_loadu_si256(from + 1);
    const __m256i c = _mm256_loadu_si256(from + 2);
    const __m256i d = _mm256_loadu_si256(from + 3);
    _mm256_stream_si256(to, a);
    _mm256_stream_si256(to + 1, b);
    _mm256_stream_si256(to + 2, c);
    _mm256_stream_si256(to + 3, d);
}

__attribute__((target("avx2"))) void stream_avx2(std::byte* target, const std::byte* source,
                                                 std::size_t size_bytes) noexcept {
    if (size_bytes < kSmallestStreamBytes) {
        std::memcpy(target, source, size_bytes);
        return;
    }
    std::size_t done = copy_to_line_boundary(target, source);
    for (; done + kPrefetchBytes + kStepBytes <= size_bytes; done += kStepBytes) {
        prefetch_ahead(source + done);
        stream_step_avx2(target + done, source + done);
    }
    for (; done + kStepBytes <= size_bytes; done += kStepBytes) stream_step_avx2(target + done, source + done);
    std::memcpy(target + done, source + done, size_bytes - done);
}

inline void stream_step_sse2(std::byte* target, const std::byte* source) noexcept {
    const auto* from = reinterpret_cast<const __m128i*>(source);
    auto* to = reinterpret_cast<__m128i*>(target);
    __m128i block[kStepBytes / sizeof(__m128i)];
    for (std::size_t i = 0; i < std::size(block); ++i) block[i] = _mm_loadu_si128(from + i);
    for (std::size_t i = 0; i < std::size(block); ++i) _mm_stream_si128(to + i, block[i]);
}

void stream_sse2(std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept {
    if (size_bytes < kSmallestStreamBytes) {
        std::memcpy(target, source, size_bytes);
        return;
    }
    std::size_t done = copy_to_line_boundary(target, source);
    for (; done + kPrefetchBytes + kStepBytes <= size_bytes; done += kStepBytes) {
        prefetch_ahead(source + done);
        stream_step_sse2(target + done, source + done);
    }
    for (; done + kStepBytes <= size_bytes; done += kStepBytes) stream_step_sse2(target + done, source + done);
    std::memcpy(target + done, source + done, size_bytes - done);
}

constexpr StreamKernel kKernels[] = {{"avx2", stream_avx2}, {"sse2", stream_sse2}};

}  // namespace

std::span<const StreamKernel> stream_kernels() noexcept {
    static const bool has_avx2 = cpu_has_avx2();
    return std::span(kKernels).subspan(has_avx2 ? 0 : 1);
}

void stream_fence() noexcept { _mm_sfence(); }

}  // namespace memfabric

#endif
