// SPDX-License-Identifier: Apache-2.0
#include "endpoint/instance_id.h"

#include <sys/random.h>

namespace memfabric {

void fill_random(std::span<std::uint8_t> bytes) {
    while (!bytes.empty()) {
        const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
        if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
}

std::string hexadecimal(std::span<const std::uint8_t> bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text.push_back(kDigits[byte >> 4]);
        text.push_back(kDigits[byte & 15]);
    }
    return text;
}

}  // namespace memfabric
