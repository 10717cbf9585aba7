// SPDX-License-Identifier: Apache-2.0
#include "endpoint/frames.h"

#include <random>
#include <string>

#include "base/last_error.h"
#include "endpoint/address.h"
#include "tests/check.h"

namespace memfabric {
namespace {

TEST(session_frames_survive_the_wire) {
    const Welcome welcome{"boot/7", "name", InstanceId{1, 2}, Secret{3, 4}};
    const auto back = decode_welcome(encode(welcome));
    REQUIRE(back.has_value());
    CHECK_EQ(back->host, welcome.host);
    CHECK_EQ(back->unix_name, welcome.unix_name);
    CHECK(back->instance == welcome.instance);
    CHECK(back->secret == welcome.secret);
    const auto attach = decode_attach(encode(Attach{Secret{9}, InstanceId{8}, "127.0.0.1:5"}));
    REQUIRE(attach.has_value());
    CHECK_EQ(attach->initiator_session, "127.0.0.1:5");
    const auto accepted = decode_accepted(encode(Accepted{InstanceId{1}, 7}));
    REQUIRE(accepted.has_value());
    CHECK_EQ(accepted->segment_count, 7U);
    const auto segment = decode_offered(encode(Offered{3, 0x7000'0000'1234, 1ULL << 40, 4096}));
    REQUIRE(segment.has_value());
    CHECK_EQ(segment->id, 3U);
    CHECK_EQ(segment->start, 0x7000'0000'1234ULL);
    CHECK_EQ(segment->size_bytes, 1ULL << 40);
    CHECK_EQ(segment->file_offset, 4096U);
    CHECK_EQ(decode_withdrawn(encode(Withdrawn{9}))->id, 9U);
    CHECK(!decode_offered(encode(Withdrawn{9})).has_value());
    CHECK_EQ(decode_refused(encode(Refused{std::string(1000, 'x')}))->reason.size(), kLongestTextBytes);
    CHECK(decode_hello(encode(Hello{})).has_value());
    CHECK(!decode_hello(encode(Refused{"x"})).has_value());
}

TEST(session_frames_are_complete_or_not_or_malformed) {
    const Bytes frame = encode(Refused{"reason"});
    std::size_t frame_bytes = 0;
    for (std::size_t length = 0; length < frame.size(); ++length) {
        CHECK(completeness(std::span(frame).first(length), frame_bytes) == Completeness::Incomplete);
    }
    CHECK(completeness(frame, frame_bytes) == Completeness::Complete);
    CHECK_EQ(frame_bytes, frame.size());
    for (std::size_t i = 0; i < 6; ++i) {
        Bytes wrong = frame;
        wrong[i] = static_cast<char>(wrong[i] ^ 0x40);
        CHECK(completeness(wrong, frame_bytes) == Completeness::Malformed);
    }
    Bytes huge = frame;
    huge[11] = 1;
    CHECK(completeness(huge, frame_bytes) == Completeness::Malformed);
}

TEST(session_frames_decode_noise_to_nothing) {
    std::mt19937_64 random(11);
    for (int turn = 0; turn < 50'000; ++turn) {
        Bytes frame = encode(Welcome{"boot/7", "name", InstanceId{}, Secret{}});
        for (int change = 0; change < 3; ++change)
            frame[12 + random() % (frame.size() - 12)] = static_cast<char>(random());
        if (const auto decoded = decode_welcome(frame)) CHECK(encode(*decoded) == frame);
        frame.resize(random() % frame.size());
        CHECK(!decode_welcome(frame).has_value());
    }
}

TEST(session_addresses_parse) {
    SessionAddress address;
    for (const char* text : {"127.0.0.1:80", "[::1]:80", "host-1.example:80"}) {
        REQUIRE_EQ(SessionAddress::parse(text, address), Status::Ok);
        CHECK_EQ(address.port, 80);
        CHECK_EQ(address.text(), text);
    }
    for (const char* text : {"127.0.0.1", "[::1]", "localhost", "127.0.0.1:0"}) {
        REQUIRE_EQ(SessionAddress::parse(text, address), Status::Ok);
        CHECK_EQ(address.port, 0);
    }
    REQUIRE_EQ(SessionAddress::parse("::1", address), Status::Ok);
    CHECK_EQ(address.text(), "[::1]");
    for (const char* text : {"", ":1", "a:", "a:x", "a:65536", "[::1", "[::1]1", "a b", "a/b:1"}) {
        CHECK_EQ(SessionAddress::parse(text, address), Status::InvalidParam);
        CHECK(!take_last_error().empty());
    }
}

}  // namespace
}  // namespace memfabric
