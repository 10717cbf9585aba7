// SPDX-License-Identifier: Apache-2.0
//
// For functions of others that are declared by hand and found at run time.
#pragma once

#include <cstddef>
#include <type_traits>

namespace memfabric::tests {

// A function of theirs can be called as one of ours if result and parameters are as wide, one by one. Integers and
// pointers of one width are passed alike.
template <typename Ours, typename Theirs>
constexpr bool is_called_alike = false;
template <typename OurResult, typename... Our, typename TheirResult, typename... Their>
    requires(sizeof...(Our) == sizeof...(Their))
constexpr bool is_called_alike<OurResult (*)(Our...), TheirResult(Their...)> = [] {
    constexpr auto width = []<typename T>(std::type_identity<T>) {
        if constexpr (std::is_void_v<T>) {
            return std::size_t{0};
        } else {
            return sizeof(T);
        }
    };
    return width(std::type_identity<OurResult>{}) == width(std::type_identity<TheirResult>{}) &&
           ((sizeof(Our) == sizeof(Their)) && ...) && ((std::is_pointer_v<Our> == std::is_pointer_v<Their>) && ...);
}();

}  // namespace memfabric::tests
