// SPDX-License-Identifier: Apache-2.0
//
// Calls into the control plane, which is started by the first of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bridge/call.h"

namespace memfabric::capi {

// Carries the call out. While it runs, this thread gets no SIGPIPE, nor do threads that it starts: Python's sockets
// leave that signal to the program. A failure to start the control plane is a failure of the call.
void carry_out(bridge::Call& call);

inline bridge::Argument argument(std::string_view text) { return text; }
inline bridge::Argument argument(const char* text) {
    return text == nullptr ? bridge::Argument() : bridge::Argument(std::string_view(text));
}
inline bridge::Argument argument(bridge::Bytes bytes) { return bytes; }
inline bridge::Argument argument(bridge::Texts texts) { return texts; }
inline bridge::Argument argument(std::nullptr_t) { return {}; }
inline bridge::Argument argument(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

template <typename Number>
    requires std::integral<Number> || std::is_enum_v<Number>
bridge::Argument argument(Number number) {
    if constexpr (std::is_enum_v<Number>) {
        return argument(static_cast<std::underlying_type_t<Number>>(number));
    } else if constexpr (std::signed_integral<Number>) {
        return static_cast<std::int64_t>(number);
    } else {
        return static_cast<std::uint64_t>(number);
    }
}

// Whether the call has answered with so many numbers; Error if it did with others: it is of another version.
[[nodiscard]] Status check_numbers(const bridge::Call& answer, std::size_t count);

template <typename... Arguments>
bridge::Call control(const char* function, Arguments&&... given) {
    const bridge::Argument arguments[] = {argument(std::forward<Arguments>(given))..., {}};  // one more: never empty
    bridge::Call call{};
    call.function = function;
    call.arguments = {arguments, sizeof...(given)};
    carry_out(call);
    call.arguments = {};
    return call;
}

}  // namespace memfabric::capi
