// SPDX-License-Identifier: Apache-2.0
//
// A target gets no more out of an initiator than what was asked for: not even memory of its choice to write to.
#include "tcp/lane.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include "tcp/transport.h"
#include "tests/assertions.h"
#include "tests/tcp/lying_target.h"
#include "transports/routed_batch.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;
using tcp::ReadEnd;
using tcp::Reply;
using tcp::Request;
using tcp::Verdict;

constexpr std::size_t kAskedBytes = 16 << 10;
constexpr auto kStallLimit = 20s;
constexpr const char* kNonsense = "carries answers that this version does not understand";

std::vector<std::byte> filled(char letter, std::size_t size_bytes = kAskedBytes) {
    return std::vector<std::byte>(size_bytes, static_cast<std::byte>(letter));
}

// `remote` is what the target calls its memory; here it is memory of the initiator's, which nobody may touch.
Outcome move(const tcp::Target& target, Direction direction, std::vector<std::byte>& local,
             const std::vector<std::byte>& remote) {
    tcp::TcpTransport transport(target);
    auto* const far = const_cast<std::byte*>(remote.data());
    RoutedBatch batch;
    batch.add(transport, direction,
              direction == Direction::Write ? Piece{far, local.data(), local.size()}
                                            : Piece{local.data(), far, local.size()});
    return batch.run([] { return Status::Ok; }, kStallLimit);
}

struct Lie {
    const char* name;
    std::function<std::string(const Request&)> answer;
};

std::string bent(const Request& request, const std::function<void(Reply&)>& bend, const std::string& behind = "") {
    Reply reply = honest_reply(request);
    bend(reply);
    return bytes_of(reply) + behind;
}

const std::string kTargetsBytes(kAskedBytes, 't');
const std::string kWholeRead = kTargetsBytes + bytes_of(ReadEnd{});

const std::vector<Lie> kLiesAboutWrites{
    {"bytes instead of a word",
     [](const Request& request) {
         return bent(
             request, [](Reply& reply) { reply.payload_bytes = std::exchange(reply.moved_bytes, 0); }, kWholeRead);
     }},
    {"bytes behind half of a write",
     [](const Request& request) {
         return bent(
             request, [](Reply& reply) { reply.payload_bytes = reply.moved_bytes /= 2; },
             kTargetsBytes.substr(kAskedBytes / 2) + bytes_of(ReadEnd{}));
     }},
    {"less than all, and no reason",
     [](const Request& request) { return bent(request, [](Reply& reply) { --reply.moved_bytes; }); }},
    {"more than was sent",
     [](const Request& request) { return bent(request, [](Reply& reply) { ++reply.moved_bytes; }); }},
    {"a verdict that there is not",
     [](const Request& request) {
         return bent(request, [](Reply& reply) {
             reply.verdict = Verdict{3};
             reply.moved_bytes = 0;
         });
     }},
    {"a piece that there is not",
     [](const Request& request) {
         return bent(request, [](Reply& reply) {
             reply = {.verdict = Verdict::NotExposed, .piece = 1, .sequence = reply.sequence};
         });
     }},
    {"another request's answer",
     [](const Request& request) { return bent(request, [](Reply& reply) { ++reply.sequence; }); }},
    {"no answer at all", [](const Request& request) { return bent(request, [](Reply& reply) { reply.magic = 0; }); }},
};

const std::vector<Lie> kLiesAboutReads{
    {"no bytes", [](const Request& request) { return bent(request, [](Reply& reply) { reply.payload_bytes = 0; }); }},
    {"more bytes than asked for",
     [](const Request& request) {
         return bent(request, [](Reply& reply) { ++reply.payload_bytes; }, kWholeRead + "t");
     }},
    {"bytes that were written",
     [](const Request& request) {
         return bent(request, [](Reply& reply) { reply.moved_bytes = std::exchange(reply.payload_bytes, 0); });
     }},
    {"a number of bytes that wraps around",
     [](const Request& request) {
         return bent(request, [](Reply& reply) {
             reply.moved_bytes = UINT64_MAX;
             ++reply.payload_bytes;
         });
     }},
    {"bytes behind a refusal",
     [](const Request& request) {
         return bent(
             request, [](Reply& reply) { reply = {.verdict = Verdict::NotExposed, .sequence = reply.sequence}; },
             kWholeRead);
     }},
    {"an end with a verdict that there is not",
     [](const Request& request) {
         return bytes_of(honest_reply(request)) + kTargetsBytes + bytes_of(ReadEnd{Verdict{3}, 0});
     }},
    {"an end about a piece that there is not",
     [](const Request& request) {
         return bytes_of(honest_reply(request)) + kTargetsBytes + bytes_of(ReadEnd{Verdict::NotExposed, 1});
     }},
};

LyingTarget::Conversation that_says(const Lie& lie) {
    return [lie](Caller& caller) {
        Request request;
        if (!caller.let_in() || !caller.hear(request) || !caller.hear_payload(request)) return;
        caller.say(lie.answer(request));
        caller.hear(request);  // until the initiator has had enough
    };
}

TEST(TcpLane, lets_no_target_answer_a_write_with_anything_else) {
    for (const Lie& lie : kLiesAboutWrites) {
        SCOPED_TRACE(lie.name);
        const LyingTarget target(that_says(lie));
        std::vector<std::byte> source = filled('s');
        const std::vector<std::byte> untouchable = filled('u');
        const Outcome outcome = move(target.address(), Direction::Write, source, untouchable);
        EXPECT_TRUE(same_bytes(untouchable, filled('u')));
        EXPECT_TRUE(same_bytes(source, filled('s')));
        EXPECT_EQ(outcome.status, Status::NotConnected);
        EXPECT_TRUE(contains(outcome.reason, kNonsense));
        EXPECT_EQ(outcome.moved_bytes, 0U);
        EXPECT_TRUE(outcome.may_have_touched_more);  // it had the bytes
    }
}

TEST(TcpLane, lets_no_target_answer_a_read_with_anything_else) {
    for (const Lie& lie : kLiesAboutReads) {
        SCOPED_TRACE(lie.name);
        const LyingTarget target(that_says(lie));
        std::vector<std::byte> found = filled('f');
        const std::vector<std::byte> untouchable = filled('u');
        const Outcome outcome = move(target.address(), Direction::Read, found, untouchable);
        EXPECT_TRUE(same_bytes(untouchable, filled('u')));
        EXPECT_EQ(outcome.status, Status::NotConnected);
        EXPECT_TRUE(contains(outcome.reason, kNonsense));
        EXPECT_EQ(outcome.moved_bytes, 0U);
        EXPECT_TRUE(outcome.may_have_touched_more || same_bytes(found, filled('f')));
    }
}

// More than the sockets take: the target answers what it has not been sent.
TEST(TcpLane, takes_no_answer_before_the_request_is_sent) {
    constexpr std::size_t kRequests = 6;
    std::latch ended(1);
    const auto answer_all = [&ended](Caller& caller) {
        Request request;
        if (!caller.let_in() || !caller.hear(request)) return;
        std::string answers = bytes_of(honest_reply(request));  // of the check
        request.operation = tcp::Operation::Write;
        request.payload_bytes = tcp::kMostPayloadBytes;
        for (std::size_t i = 0; i <= kRequests; ++i) {  // one more than there are
            ++request.sequence;
            answers += bytes_of(honest_reply(request));
        }
        caller.say(answers);
        ended.wait();
    };
    const LyingTarget target(answer_all, {}, 4096);
    std::vector<std::byte> source = filled('s', kRequests * tcp::kMostPayloadBytes);
    const Outcome outcome = move(target.address(), Direction::Write, source, source);
    ended.count_down();
    EXPECT_EQ(outcome.status, Status::NotConnected);
    EXPECT_TRUE(contains(outcome.reason, kNonsense));
}

}  // namespace
}  // namespace memfabric
