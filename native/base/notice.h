// SPDX-License-Identifier: Apache-2.0
//
// What the core has to say though nothing has failed: that it goes another way than one would expect, and why.
#pragma once

#include "base/api.h"

namespace memfabric {

// Called by whatever thread has something to say, with locks and guards of the core held: it must neither block nor
// call the core.
using NoticeHandler = void (*)(const char* sentence);

MF_API void set_notice_handler(NoticeHandler handler);  // nullptr: nobody listens

MF_API [[gnu::cold, gnu::format(printf, 1, 2)]] void notice(const char* format, ...);

}  // namespace memfabric
