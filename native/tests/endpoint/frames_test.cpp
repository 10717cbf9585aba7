// SPDX-License-Identifier: Apache-2.0
#include "endpoint/frames.h"

#include <random>
#include <string>

#include "base/last_error.h"
#include "endpoint/address.h"
#include "tests/assertions.h"

namespace memfabric {
namespace {

TEST(SessionFrames, survive_the_wire) {
    const Welcome welcome{"boot/7", "name", InstanceId{1, 2}, Secret{3, 4}};
    const auto back = decode_welcome(encode(welcome));
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->host, welcome.host);
    EXPECT_EQ(back->unix_name, welcome.unix_name);
    EXPECT_EQ(back->instance, welcome.instance);
    EXPECT_EQ(back->secret, welcome.secret);
    const auto attach = decode_attach(encode(Attach{Secret{9}, InstanceId{8}, "127.0.0.1:5"}));
    ASSERT_TRUE(attach.has_value());
    EXPECT_EQ(attach->initiator_session, "127.0.0.1:5");
    const auto accepted = decode_accepted(encode(Accepted{InstanceId{1}, 7, Secret{5}}));
    ASSERT_TRUE(accepted.has_value());
    EXPECT_EQ(accepted->data_secret, Secret{5});
    EXPECT_EQ(accepted->segment_count, 7U);
    const auto segment = decode_offered(encode(Offered{3, 0x7000'0000'1234, 1ULL << 40, 4096}));
    ASSERT_TRUE(segment.has_value());
    EXPECT_EQ(segment->id, 3U);
    EXPECT_EQ(segment->start, 0x7000'0000'1234ULL);
    EXPECT_EQ(segment->size_bytes, 1ULL << 40);
    EXPECT_EQ(segment->file_offset, 4096U);
    EXPECT_EQ(decode_withdrawn(encode(Withdrawn{9}))->id, 9U);
    EXPECT_FALSE(decode_offered(encode(Withdrawn{9})).has_value());
    EXPECT_EQ(decode_refused(encode(Refused{std::string(1000, 'x')}))->reason.size(), kLongestTextBytes);
    EXPECT_TRUE(decode_hello(encode(Hello{})).has_value());
    EXPECT_FALSE(decode_hello(encode(Refused{"x"})).has_value());
}

TEST(SessionFrames, notifications_survive_the_wire) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{kMaxNotificationBytes}}) {
        const auto notify = decode_notify(encode_notify(7, std::string(size, 'n')));
        ASSERT_TRUE(notify.has_value()) << size;
        EXPECT_EQ(notify->number, 7U);
        EXPECT_EQ(notify->data, std::string(size, 'n'));
    }
    EXPECT_FALSE(decode_notify(encode_notify(7, std::string(kMaxNotificationBytes + 1, 'n'))).has_value());
    const auto notified = decode_notified(encode(Notified{9, NotifyVerdict::TooMany}));
    ASSERT_TRUE(notified.has_value());
    EXPECT_EQ(notified->number, 9U);
    EXPECT_EQ(notified->verdict, NotifyVerdict::TooMany);
    EXPECT_FALSE(decode_notified(encode(Notified{9, static_cast<NotifyVerdict>(4)})).has_value());
    EXPECT_FALSE(decode_notify(encode(Notified{9, NotifyVerdict::Queued})).has_value());
}

TEST(SessionFrames, regions_of_ucx_survive_the_wire) {
    const UcxOffer offer{"1.18.0", "ib", "mlx5_0:1", ""};
    const auto accepted = decode_accepted_remote(encode(AcceptedRemote{"10.0.0.1", 7, Secret{5}, offer}));
    ASSERT_TRUE(accepted.has_value());
    EXPECT_EQ(accepted->data_port, 7);
    EXPECT_EQ(accepted->ucx.version, "1.18.0");
    EXPECT_EQ(accepted->ucx.devices, "mlx5_0:1");
    const std::string long_text(1000, 'x');
    EXPECT_TRUE(
        decode_accepted_remote(encode(AcceptedRemote{long_text, 7, {}, {long_text, long_text, long_text, long_text}}))
            .has_value());
    const auto ask = decode_ask_region(encode(AskRegion{3, 0x7000'0000'1234}));
    ASSERT_TRUE(ask.has_value());
    EXPECT_EQ(ask->number, 3U);
    EXPECT_EQ(ask->address, 0x7000'0000'1234ULL);
    const ServedRegion region{3,
                              RegionVerdict::Served,
                              {},
                              0x7000'0000'0000,
                              1ULL << 40,
                              Bytes(kLongestUcxBytes / 2, 'w'),
                              Bytes(kLongestUcxBytes / 2, 'k')};
    const auto back = decode_served_region(encode(region));
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->base, region.base);
    EXPECT_EQ(back->size_bytes, region.size_bytes);
    EXPECT_EQ(back->worker_address, region.worker_address);
    EXPECT_EQ(back->key, region.key);
    Bytes cut = encode(region);
    cut.pop_back();
    EXPECT_FALSE(decode_served_region(cut).has_value());
    EXPECT_FALSE(decode_served_region(encode(ServedRegion{3, static_cast<RegionVerdict>(3), {}, 0, 0, {}, {}})));
}

TEST(SessionFrames, only_what_needs_it_may_be_long) {
    std::size_t frame_bytes = 0;
    Bytes frame = encode_notify(1, std::string(2 * kLongestPayloadBytes, 'n'));
    EXPECT_EQ(completeness(frame, frame_bytes), Completeness::Complete);
    frame[6] = 5;  // a refusal
    EXPECT_EQ(completeness(frame, frame_bytes), Completeness::Malformed);
    frame = encode_notify(1, std::string(kMaxNotificationBytes + 1, 'n'));
    EXPECT_EQ(completeness(std::span(frame).first(kFrameHeaderBytes), frame_bytes), Completeness::Malformed);
}

TEST(SessionFrames, are_complete_or_not_or_malformed) {
    const Bytes frame = encode(Refused{"reason"});
    std::size_t frame_bytes = 0;
    for (std::size_t length = 0; length < frame.size(); ++length) {
        EXPECT_EQ(completeness(std::span(frame).first(length), frame_bytes), Completeness::Incomplete);
    }
    EXPECT_EQ(completeness(frame, frame_bytes), Completeness::Complete);
    EXPECT_EQ(frame_bytes, frame.size());
    for (std::size_t i = 0; i < 6; ++i) {
        Bytes wrong = frame;
        wrong[i] = static_cast<char>(wrong[i] ^ 0x40);
        EXPECT_EQ(completeness(wrong, frame_bytes), Completeness::Malformed) << "byte " << i;
    }
    Bytes huge = frame;
    huge[11] = 1;
    EXPECT_EQ(completeness(huge, frame_bytes), Completeness::Malformed);
}

TEST(SessionFrames, decode_noise_to_nothing) {
    std::mt19937_64 random(11);
    for (int turn = 0; turn < 50'000; ++turn) {
        Bytes frame = encode(Welcome{"boot/7", "name", InstanceId{}, Secret{}});
        for (int change = 0; change < 3; ++change)
            frame[12 + random() % (frame.size() - 12)] = static_cast<char>(random());
        if (const auto decoded = decode_welcome(frame)) {
            EXPECT_EQ(encode(*decoded), frame);
        }
        frame.resize(random() % frame.size());
        EXPECT_FALSE(decode_welcome(frame).has_value());
    }
}

TEST(SessionAddresses, parse) {
    SessionAddress address;
    for (const char* text : {"127.0.0.1:80", "[::1]:80", "host-1.example:80"}) {
        ASSERT_EQ(SessionAddress::parse(text, address), Status::Ok) << text;
        EXPECT_EQ(address.port, 80);
        EXPECT_EQ(address.text(), text);
    }
    for (const char* text : {"127.0.0.1", "[::1]", "localhost", "127.0.0.1:0"}) {
        ASSERT_EQ(SessionAddress::parse(text, address), Status::Ok) << text;
        EXPECT_EQ(address.port, 0);
    }
    ASSERT_EQ(SessionAddress::parse("::1", address), Status::Ok);
    EXPECT_EQ(address.text(), "[::1]");
    for (const char* text : {"", ":1", "a:", "a:x", "a:65536", "[::1", "[::1]1", "a b", "a/b:1"}) {
        EXPECT_EQ(SessionAddress::parse(text, address), Status::InvalidParam) << text;
        EXPECT_FALSE(take_last_error().empty());
    }
}

}  // namespace
}  // namespace memfabric
