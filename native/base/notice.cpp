// SPDX-License-Identifier: Apache-2.0
#include "base/notice.h"

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace memfabric {
namespace {

std::atomic<NoticeHandler> listener{nullptr};

}  // namespace

void set_notice_handler(NoticeHandler handler) { listener.store(handler); }

void notice(const char* format, ...) {
    const NoticeHandler handler = listener.load();
    if (handler == nullptr) return;
    std::array<char, 1024> sentence;
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(sentence.data(), sentence.size(), format, arguments);
    va_end(arguments);
    handler(sentence.data());
}

}  // namespace memfabric
