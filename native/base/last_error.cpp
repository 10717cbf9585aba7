// SPDX-License-Identifier: Apache-2.0
#include "base/last_error.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <new>
#include <utility>

#include "base/per_thread.h"

namespace memfabric {
namespace {

struct Sentences {
    std::string last;
    std::string reported;
};

void keep(std::string_view sentence) noexcept try {
    PerThread<Sentences>::get().last = sentence;
} catch (const std::bad_alloc&) {
    if (Sentences* const kept = PerThread<Sentences>::find(); kept != nullptr) kept->last.clear();
}

}  // namespace

Status fail(Status status, const char* format, ...) {
    std::array<char, 1024> text;  // longer sentences are cut; none of ours comes near
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    keep(text.data());
    return status;
}

void set_last_error(std::string_view sentence) { keep(sentence); }

const std::string& last_error() { return PerThread<Sentences>::get().last; }

std::string take_last_error() {
    Sentences& sentences = PerThread<Sentences>::get();
    return std::exchange(sentences.last, sentences.reported);
}

void report_last_error() {
    Sentences& sentences = PerThread<Sentences>::get();
    sentences.reported = sentences.last;
}

void clear_last_error() { PerThread<Sentences>::get() = {}; }

}  // namespace memfabric
