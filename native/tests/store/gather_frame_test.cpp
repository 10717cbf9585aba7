// SPDX-License-Identifier: Apache-2.0
#include "store/gather_frame.h"

#include <string>
#include <string_view>
#include <vector>

#include "tests/check.h"

namespace memfabric::store {
namespace {

using namespace std::string_literals;

std::vector<std::string_view> parts;

TEST(gather_frame_is_a_header_and_an_array) {
    const std::string frame = gather_frame({1, "g", 2, 3, 300, "ab", 1.0});
    CHECK(frame ==
          "\0\0\0\x17\x01"s + "\x98\x12\x01\xa1g\x02\x03\xcd\x01\x2c\xc4\x02"s + "ab\xcb\x3f\xf0\0\0\0\0\0\0"s);
    std::size_t payload_bytes = 0;
    CHECK(read_header(frame, payload_bytes));
    CHECK(payload_bytes == frame.size() - kHeaderBytes);
}

TEST(header_of_another_version_or_too_short) {
    std::size_t payload_bytes = 0;
    CHECK(!read_header("\0\0\0\x16\x02"s, payload_bytes));
    CHECK(!read_header("\0\0\0\x16"s, payload_bytes));
}

TEST(answers_of_a_barrier) {
    CHECK(read_gather_answer("\x92\x4a\x05"s, 5, parts) == GatherAnswer::kArrived);
    CHECK(read_gather_answer("\x92\x4a\xcd\x04\0"s, 1024, parts) == GatherAnswer::kArrived);
    CHECK(read_gather_answer("\x92\x4a\x05"s, 4, parts) == GatherAnswer::kOther);
    CHECK(read_gather_answer("\x92\x4a\x05\0"s, 5, parts) == GatherAnswer::kOther);
    CHECK(read_gather_answer("\x92\x4a"s, 5, parts) == GatherAnswer::kOther);
}

TEST(answers_of_a_gather_point_into_the_payload) {
    const std::string payload = "\x92\x49\x93\xc4\x02xy\xc5\0\x01z\xc4\0"s;
    CHECK(read_gather_answer(payload, 3, parts) == GatherAnswer::kGathered);
    CHECK(parts == (std::vector<std::string_view>{"xy", "z", ""}));
    CHECK(parts[0].data() == payload.data() + 5);
    CHECK(read_gather_answer(payload, 2, parts) == GatherAnswer::kOther);
}

TEST(no_cut_or_change_of_an_answer_is_read_beyond_its_end) {
    const std::string whole = "\x92\x49\xdc\0\x03\xc4\x02xy\xc5\0\x01z\xc6\0\0\0\x03"s + "abc";
    CHECK(read_gather_answer(whole, 3, parts) == GatherAnswer::kGathered);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const std::vector<char> exact(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        CHECK(read_gather_answer({exact.data(), exact.size()}, 3, parts) == GatherAnswer::kOther);
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
        for (int value = 0; value < 256; ++value) {
            std::vector<char> changed(whole.begin(), whole.end());  // a vector, so that the sanitizer knows its end
            changed[at] = static_cast<char>(value);
            if (read_gather_answer({changed.data(), changed.size()}, 3, parts) != GatherAnswer::kGathered) continue;
            std::size_t total = 0;
            for (const std::string_view part : parts) total += part.size();
            CHECK(total < whole.size());
        }
    }
}

}  // namespace
}  // namespace memfabric::store
