// SPDX-License-Identifier: Apache-2.0
//
// Answers that no target should give: whatever comes, the initiator changes no memory but what it reads into, and says
// what became of its move. MF_LIAR_SEEDS is the number of liars; the failure of one names its seed.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tcp/lane.h"
#include "tests/assertions.h"
#include "tests/tcp/lying_target.h"
#include "transports/routed_batch.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;
using tcp::Request;

constexpr std::size_t kMoves = 10;                         // of one liar
constexpr std::size_t kLocalBytes = std::size_t{5} << 19;  // more than one request takes
constexpr auto kPatience = 20ms;

class Random {
public:
    explicit Random(std::uint64_t seed) : random_(seed) {}

    std::uint64_t below(std::uint64_t end) { return random_() % end; }
    bool once_in(std::uint64_t times) { return below(times) == 0; }
    std::string bytes(std::size_t count) {
        std::string made(count, '\0');
        for (char& byte : made) byte = static_cast<char>(random_());
        return made;
    }
    // A number that somebody may not have thought of.
    std::uint64_t number(std::uint64_t right) {
        const std::array<std::uint64_t, 10> candidates{
            0, 1, right + 1, right - 1, right / 2, right * 2, 0 - right, UINT64_MAX, std::uint64_t{1} << 63, random_()};
        return candidates[below(candidates.size())];
    }
    std::string bent(std::string bytes) {
        switch (below(5)) {
            case 0:
                bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
                return bytes;
            case 1:
                return bytes.substr(0, below(bytes.size()));
            case 2:
                return bytes + this->bytes(1 + below(200));
            case 3:
                return bytes + bytes;
            default:
                return this->bytes(1 + below(200));
        }
    }

private:
    std::mt19937_64 random_;
};

class Liar {
public:
    explicit Liar(std::uint64_t seed) : random_(seed) {}

    void talk(Caller& caller) {
        if (!caller.hear_greeting()) return;
        const std::string greeting = random_.once_in(6) ? encode(Refused{random_.bytes(300)}) : encode(Connected{7});
        if (!caller.say(random_.once_in(6) ? random_.bent(greeting) : greeting)) return;
        for (Request request; caller.hear(request);) {
            if (!random_.once_in(30) && !caller.hear_payload(request)) return;
            const bool lies = random_.once_in(4);
            if (!caller.say(lies ? lie(request) : truth(request)) || (lies && random_.once_in(2))) return;
        }
    }

private:
    static std::string truth(const Request& request) { return answer(request, honest_reply(request), {}); }
    static std::string answer(const Request& request, const tcp::Reply& reply, const tcp::ReadEnd& end) {
        if (request.operation != tcp::Operation::Read) return bytes_of(reply);
        return bytes_of(reply) + std::string(request.payload_bytes, 't') + bytes_of(end);
    }
    std::string lie(const Request& request) {
        tcp::Reply reply = honest_reply(request);
        tcp::ReadEnd end;
        switch (random_.below(7)) {
            case 0:
                reply.verdict = tcp::Verdict{static_cast<std::uint32_t>(random_.number(1))};
                break;
            case 1:
                reply = {.verdict = tcp::Verdict{static_cast<std::uint32_t>(1 + random_.below(3))},
                         .piece = static_cast<std::uint32_t>(random_.number(request.piece_count)),
                         .sequence = reply.sequence};
                return bytes_of(reply);
            case 2:
                std::swap(reply.payload_bytes, reply.moved_bytes);
                return bytes_of(reply) + std::string(request.payload_bytes, 't') + bytes_of(end);
            case 3:
                reply.payload_bytes = random_.number(request.payload_bytes);
                break;
            case 4:
                reply.moved_bytes = random_.number(request.payload_bytes);
                break;
            case 5:
                end = {tcp::Verdict{static_cast<std::uint32_t>(random_.number(1))},
                       static_cast<std::uint32_t>(random_.number(request.piece_count))};
                break;
            default:
                return random_.bent(truth(request));
        }
        return answer(request, reply, end);
    }

    Random random_;
};

// Pieces of the local memory, with gaps in between; the remote addresses are memory of this process, too.
std::vector<Piece> random_pieces(Random& random, Direction direction, std::vector<std::byte>& local,
                                 std::vector<std::byte>& remote) {
    const std::size_t longest_bytes = random.once_in(8) ? kLocalBytes : std::size_t{1} << random.below(16);
    const std::size_t most = random.once_in(4) ? 2500 : 1 + random.below(5);
    std::vector<Piece> pieces;
    for (std::size_t offset = random.below(64); pieces.size() < most && offset < kLocalBytes;) {
        const std::size_t size_bytes = 1 + random.below(std::min(longest_bytes, kLocalBytes - offset));
        std::byte* const here = local.data() + offset;
        std::byte* const there = remote.data() + offset;
        pieces.push_back(direction == Direction::Write ? Piece{there, here, size_bytes}
                                                       : Piece{here, there, size_bytes});
        offset += size_bytes + random.below(64);
    }
    return pieces;
}

TEST(TcpLane, bears_every_answer) {
    const char* const wanted = std::getenv("MF_LIAR_SEEDS");
    const std::uint64_t seeds = wanted == nullptr ? 20 : std::strtoull(wanted, nullptr, 10);
    std::size_t successes = 0;
    std::size_t failures = 0;
    const std::vector<std::byte> untouched(kLocalBytes, std::byte{'u'});
    std::vector<std::byte> remote = untouched;
    for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Random random(seed);
        Liar liar(seed);
        const LyingTarget target([&liar](Caller& caller) { liar.talk(caller); },
                                 {0, std::chrono::microseconds(kPatience).count()});
        tcp::TcpTransport transport(target.address());
        for (std::size_t i = 0; i < kMoves; ++i) {
            const Direction direction = random.once_in(2) ? Direction::Write : Direction::Read;
            std::vector<std::byte> local = untouched;
            RoutedBatch batch;
            std::size_t total_bytes = 0;
            const std::vector<Piece> pieces = random_pieces(random, direction, local, remote);
            for (const Piece& piece : pieces) {
                batch.add(transport, direction, piece);
                total_bytes += piece.size_bytes;
            }
            const Outcome outcome = batch.run([] { return Status::Ok; }, kPatience);
            ++(outcome.status == Status::Ok ? successes : failures);
            EXPECT_LE(outcome.moved_bytes, total_bytes);
            EXPECT_TRUE(outcome.status == Status::Ok ? outcome.moved_bytes == total_bytes : !outcome.reason.empty());
            if (direction == Direction::Read) {
                for (const Piece& piece : pieces) {
                    std::memset(piece.target, 'u', piece.size_bytes);
                }
            }
            EXPECT_TRUE(local == untouched);
            EXPECT_TRUE(remote == untouched);
        }
    }
    EXPECT_GT(successes, seeds);
    EXPECT_GT(failures, seeds);
}

}  // namespace
}  // namespace memfabric
