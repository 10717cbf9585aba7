// SPDX-License-Identifier: Apache-2.0
#include "base/last_error.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <utility>

namespace memfabric {
namespace {

thread_local std::string sentence_of_thread;

}  // namespace

Status fail(Status status, const char* format, ...) {
    std::array<char, 1024> text;  // longer sentences are cut; none of ours comes near
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    sentence_of_thread = text.data();
    return status;
}

void set_last_error(std::string_view sentence) { sentence_of_thread = sentence; }

const std::string& last_error() { return sentence_of_thread; }

std::string take_last_error() { return std::exchange(sentence_of_thread, {}); }

}  // namespace memfabric
