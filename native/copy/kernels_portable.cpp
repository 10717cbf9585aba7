// SPDX-License-Identifier: Apache-2.0
//
// Everything that is not x86-64: aarch64 stores pairs of vector registers with the non-temporal hint, other machines
// leave it to their C library. Neither needs a fence of its own: such stores obey the ordinary release ordering.
#if !defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include "copy/kernels.h"

namespace memfabric {
namespace {

#if defined(__aarch64__)

constexpr std::size_t kStepBytes = 64;
constexpr std::size_t kPrefetchBytes = 512;
constexpr std::size_t kSmallestStreamBytes = 512;

inline void stream_step(std::byte* target, const std::byte* source) noexcept {
    asm volatile(
        "ldp q0, q1, [%[source]]\n\t"
        "ldp q2, q3, [%[source], #32]\n\t"
        "stnp q0, q1, [%[target]]\n\t"
        "stnp q2, q3, [%[target], #32]"
        :
        : [source] "r"(source), [target] "r"(target)
        : "v0", "v1", "v2", "v3", "memory");
}

void stream_stnp(std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept {
    if (size_bytes < kSmallestStreamBytes) {
        std::memcpy(target, source, size_bytes);
        return;
    }
    std::size_t done = (kStepBytes - reinterpret_cast<std::uintptr_t>(target) % kStepBytes) % kStepBytes;
    std::memcpy(target, source, done);
    for (; done + kPrefetchBytes + kStepBytes <= size_bytes; done += kStepBytes) {
        __builtin_prefetch(source + done + kPrefetchBytes, 0, 0);
        stream_step(target + done, source + done);
    }
    for (; done + kStepBytes <= size_bytes; done += kStepBytes) stream_step(target + done, source + done);
    std::memcpy(target + done, source + done, size_bytes - done);
}

constexpr StreamKernel kKernels[] = {{"stnp", stream_stnp}};

#else

void copy_plain(std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept {
    std::memcpy(target, source, size_bytes);
}

constexpr StreamKernel kKernels[] = {{"memcpy", copy_plain}};

#endif

}  // namespace

std::span<const StreamKernel> stream_kernels() noexcept { return kKernels; }

void stream_fence() noexcept {}

}  // namespace memfabric

#endif
