// SPDX-License-Identifier: Apache-2.0
//
// Peers are let in, heard and seen to end; strangers go, descriptors may run out, a forked child disturbs nobody.
#include "endpoint/endpoint.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/notice.h"
#include "endpoint/frames.h"
#include "endpoint/instance_id.h"
#include "tests/assertions.h"
#include "tests/descriptor_limits.h"
#include "tests/threads.h"
#include "tests/tls/tls_identity.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLong = 20s;

std::string some_name() {
    std::array<std::uint8_t, 8> random;
    fill_random(random);
    return "memfabric-test-" + hexadecimal(random);
}

struct Place {
    std::string name = some_name();
    std::shared_ptr<Endpoint> endpoint;
    Endpoint::News news;

    explicit Place(Endpoint::Strangers strangers = Endpoint::kEverybodyMayStay) {
        std::vector<Endpoint::Listener> listeners;
        listeners.emplace_back(Link::Kind::Unix, OwnedFd());
        require_ok(listen_abstract(name, listeners[0].fd));
        require_ok(Endpoint::open(std::move(listeners), strangers, endpoint));
    }
    std::shared_ptr<Link> connect() const {
        std::shared_ptr<Link> link;
        require_ok(Link::connect(name, link));
        return link;
    }
    std::shared_ptr<Link> next() {
        endpoint->wait(Clock::now() + kLong, news);
        require(news.links.size() == 1);
        return news.links[0];
    }
    bool is_quiet(std::chrono::milliseconds time = 0ms) {
        endpoint->wait(Clock::now() + time, news);
        return news.links.empty() && !news.woken;
    }
};

bool is_over(Link& link) {
    Packet packet;
    return link.receive(packet) == Reception::End;
}

Bytes content(Link& link) {
    Packet packet;
    require(link.receive(packet) == Reception::Packet);
    return packet.bytes;
}

TEST(Endpoint, hears_whom_it_lets_in_until_the_end) {
    Place place;
    const std::shared_ptr<Link> theirs = place.connect();
    const std::shared_ptr<Link> ours = place.next();
    Packet packet;
    EXPECT_EQ(ours->receive(packet), Reception::Nothing);
    EXPECT_TRUE(place.is_quiet());
    const OwnedFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(theirs->send("question", std::array{file.get(), file.get()}), Sending::Sent);
    EXPECT_EQ(place.next(), ours);
    EXPECT_EQ(ours->receive(packet), Reception::Packet);
    EXPECT_EQ(packet.bytes, "question");
    EXPECT_EQ(packet.fds.size(), 2U);
    EXPECT_EQ(ours->send("answer"), Sending::Sent);
    EXPECT_EQ(content(*theirs), "answer");
    ucred who{};
    EXPECT_TRUE(ours->peer(who));
    EXPECT_EQ(who.pid, getpid());
    theirs->close();
    EXPECT_EQ(place.next(), ours);
    EXPECT_TRUE(is_over(*ours));
    place.endpoint->drop(*ours);
    EXPECT_TRUE(place.is_quiet());
    EXPECT_FALSE(ours->peer(who));
    EXPECT_EQ(ours->send("late"), Sending::Failed);
}

TEST(Endpoint, lets_a_crowd_in_by_turns) {
    Place place;
    std::vector<std::shared_ptr<Link>> crowd;
    for (int i = 0; i < 100; ++i) crowd.push_back(place.connect());
    place.endpoint->wait(Clock::now() + kLong, place.news);
    EXPECT_EQ(place.news.links.size(), 64U);
    place.endpoint->wait(Clock::now() + kLong, place.news);
    EXPECT_EQ(place.news.links.size(), 36U);
}

TEST(Endpoint, watches_links_that_we_made) {
    Place place;
    Place other;
    const std::shared_ptr<Link> link = other.connect();
    ASSERT_TRUE(place.endpoint->add(link));
    EXPECT_EQ(other.next()->send("hello"), Sending::Sent);
    EXPECT_EQ(place.next(), link);
    EXPECT_EQ(content(*link), "hello");
    other.endpoint->close();
    EXPECT_EQ(place.next(), link);
    EXPECT_TRUE(is_over(*link));
}

TEST(Endpoint, leaves_a_muted_link_to_others_but_for_its_end) {
    Place target;
    Place initiator;
    const std::shared_ptr<Link> ours = target.connect();
    ASSERT_TRUE(initiator.endpoint->add(ours));
    const std::shared_ptr<Link> theirs = target.next();
    initiator.endpoint->mute(*ours);
    require(theirs->send("for others") == Sending::Sent);
    EXPECT_TRUE(initiator.is_quiet(20ms));
    initiator.endpoint->unmute(*ours);
    EXPECT_EQ(initiator.next(), ours);
    Packet packet;
    EXPECT_EQ(ours->receive(packet), Reception::Packet);
    initiator.endpoint->mute(*ours);
    target.endpoint->drop(*theirs);
    EXPECT_EQ(initiator.next(), ours);
}

TEST(Endpoint, can_be_woken_and_has_a_deadline) {
    Place place;
    std::thread waker([&] { place.endpoint->wake(); });
    place.endpoint->wait(Deadline::max(), place.news);
    EXPECT_TRUE(place.news.woken);
    waker.join();
    const auto began = Clock::now();
    EXPECT_TRUE(place.is_quiet(50ms));
    EXPECT_GE(Clock::now() - began, 50ms);
}

TEST(Endpoint, strangers_go_and_the_trusted_stay) {
    Place place({100ms, 1000});
    const std::shared_ptr<Link> stranger = place.connect();
    const std::shared_ptr<Link> first = place.next();
    const std::shared_ptr<Link> trusted = place.connect();
    const std::shared_ptr<Link> second = place.next();
    place.endpoint->trust(*second);
    EXPECT_EQ(place.next(), second);  // which has room
    while (!is_over(*stranger)) EXPECT_TRUE(place.is_quiet(20ms));
    EXPECT_EQ(trusted->send("still here"), Sending::Sent);
    EXPECT_EQ(place.next(), second);
    EXPECT_EQ(content(*second), "still here");
}

TEST(Endpoint, crowd_of_strangers_keeps_nobody_out) {
    Place place({std::chrono::hours(1), 2});
    const std::shared_ptr<Link> trusted = place.connect();
    place.endpoint->trust(*place.next());
    EXPECT_FALSE(place.is_quiet());  // it has room
    std::vector<std::shared_ptr<Link>> crowd;
    for (int i = 0; i < 4; ++i) {
        crowd.push_back(place.connect());
        place.next();
    }
    EXPECT_TRUE(is_over(*crowd[0]));
    EXPECT_TRUE(is_over(*crowd[1]));
    EXPECT_FALSE(is_over(*crowd[2]));
    EXPECT_FALSE(is_over(*crowd[3]));
    EXPECT_FALSE(is_over(*trusted));
}

// Longer than the pause between two attempts to let somebody in, of whom the kernel speaks all the time.
void expect_rest(Place& place) {
    const auto before = cpu_time();
    EXPECT_TRUE(place.is_quiet(300ms));
    EXPECT_LT(cpu_time() - before, 30ms);
}

// The spare descriptor lets one in; those behind it wait, and whoever is let in next gets the number of the first.
TEST(Endpoint, lets_one_in_without_descriptors_and_the_others_when_there_are_some) {
    if (kSanitizerNeedsDescriptors) GTEST_SKIP() << kNoneToSpare;
    Place place;
    static std::string said;
    set_notice_handler([](const char* sentence) { said = sentence; });
    std::vector<std::shared_ptr<Link>> peers;
    for (int i = 0; i < 3; ++i) peers.push_back(place.connect());
    {
        const NoFurtherDescriptor none;
        const std::shared_ptr<Link> first = place.next();
        EXPECT_EQ(peers[0]->send("I"), Sending::Sent);
        EXPECT_EQ(place.next(), first);
        EXPECT_EQ(content(*first), "I");
        expect_rest(place);
        place.endpoint->drop(*first);
        EXPECT_LT(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);  // nobody else got its number
        EXPECT_NE(place.next(), first);
        expect_rest(place);
    }
    EXPECT_TRUE(contains(said, "no other process is let in: Too many open files; raise the limit"));
    set_notice_handler(nullptr);
    place.next();
    EXPECT_EQ(peers[2]->send("last"), Sending::Sent);
    EXPECT_EQ(content(*place.next()), "last");
}

// An endpoint that listens on TCP, with somebody connected to it.
struct TcpEndpoint {
    explicit TcpEndpoint(std::shared_ptr<const tls::Identity> identity) {
        SessionAddress address{"127.0.0.1", 0};
        OwnedFd holder;
        OwnedFd listener;
        require_ok(reserve_port(holder, address.port));
        require_ok(listen_at(address, listener));
        std::vector<Endpoint::Listener> listeners;
        listeners.push_back({Link::Kind::Tcp, std::move(listener), std::move(identity)});
        require_ok(Endpoint::open(std::move(listeners), Endpoint::kEverybodyMayStay, endpoint));
        require_ok(connect_to(address, Clock::now() + kLong, connection));
    }

    // Until somebody has said something whole, or has gone; the other side does its part meanwhile.
    template <typename Meanwhile>
    Reception hear(Packet& packet, Meanwhile meanwhile) {
        for (;;) {
            meanwhile();
            Endpoint::News news;
            endpoint->wait(Clock::now() + 10ms, news);
            for (const std::shared_ptr<Link>& link : news.links) {
                if (const Reception reception = link->receive(packet); reception != Reception::Nothing) {
                    heard = link;
                    return reception;
                }
            }
        }
    }

    std::shared_ptr<Endpoint> endpoint;
    OwnedFd connection;
    std::shared_ptr<Link> heard;
};

TEST(Endpoint, hears_encrypted_frames) {
    if (const std::string obstacle = no_openssl(); !obstacle.empty()) GTEST_SKIP() << obstacle;
    const auto identity = good_identity();
    TcpEndpoint place(identity);
    auto stream = tls::Stream::open(identity->context(), place.connection.get(), tls::Role::Client);
    Link peer(Link::Kind::Tcp, std::move(place.connection), std::move(stream));
    bool said = false;
    Packet packet;
    const Reception reception = place.hear(packet, [&] {
        if (!said && peer.shake_hands() == tls::Handshake::Done) said = peer.send(encode(Hello{})) == Sending::Sent;
    });
    EXPECT_EQ(reception, Reception::Packet);
    EXPECT_TRUE(decode_hello(packet.bytes).has_value());
    ASSERT_EQ(place.heard->send(encode(Refused{"no"})), Sending::Sent);
    ASSERT_EQ(peer.wait_for_news(Clock::now() + kLong), Status::Ok);
    ASSERT_EQ(peer.receive(packet), Reception::Packet);
    EXPECT_EQ(decode_refused(packet.bytes)->reason, "no");
}

TEST(Endpoint, tells_who_does_not_encrypt) {
    if (const std::string obstacle = no_openssl(); !obstacle.empty()) GTEST_SKIP() << obstacle;
    TcpEndpoint place(good_identity());
    Link peer(Link::Kind::Tcp, std::move(place.connection));
    ASSERT_EQ(peer.send(encode(Hello{})), Sending::Sent);
    Packet packet;
    std::thread reader([&] {
        while (peer.receive(packet) == Reception::Nothing) static_cast<void>(peer.wait_for_news(Clock::now() + kLong));
        peer.close();
    });
    Packet nothing;
    EXPECT_EQ(place.hear(nothing, [] {}), Reception::End);
    reader.join();
    ASSERT_TRUE(decode_refused(packet.bytes).has_value());
    EXPECT_TRUE(contains(decode_refused(packet.bytes)->reason, "encrypted connections only"));
}

TEST(Endpoint, refuses_who_encrypts_where_nobody_can) {
    if (const std::string obstacle = no_openssl(); !obstacle.empty()) GTEST_SKIP() << obstacle;
    TcpEndpoint place(nullptr);
    auto stream = tls::Stream::open(good_identity()->context(), place.connection.get(), tls::Role::Client);
    auto peer = std::make_unique<Link>(Link::Kind::Tcp, std::move(place.connection), std::move(stream));
    std::string failure;
    Packet packet;
    const Reception reception = place.hear(packet, [&] {
        if (peer != nullptr && peer->shake_hands() == tls::Handshake::Failed) {
            failure = peer->failure();
            peer.reset();
        }
    });
    EXPECT_EQ(reception, Reception::End);
    EXPECT_TRUE(contains(failure, "it ended the connection in the TLS handshake"));
}

TEST(Endpoint, hears_whole_frames_over_tcp) {
    const TcpEndpoint place(nullptr);
    const auto& [endpoint, connection, heard] = place;
    Endpoint::News news;
    endpoint->wait(Clock::now() + kLong, news);
    ASSERT_EQ(news.links.size(), 1U);
    const std::shared_ptr<Link> link = news.links[0];
    const Bytes two = encode(Hello{}) + encode(Refused{"no"});
    const auto say = [&](std::size_t from, std::size_t to) {
        ASSERT_EQ(send(connection.get(), two.data() + from, to - from, 0), static_cast<ssize_t>(to - from));
        endpoint->wait(Clock::now() + kLong, news);
        ASSERT_EQ(news.links.size(), 1U);
    };
    Packet packet;
    say(0, 5);
    EXPECT_EQ(link->receive(packet), Reception::Nothing);
    say(5, two.size() - 1);
    EXPECT_EQ(link->receive(packet), Reception::Packet);
    EXPECT_EQ(packet.bytes, encode(Hello{}));
    EXPECT_EQ(link->receive(packet), Reception::Nothing);
    say(two.size() - 1, two.size());
    EXPECT_EQ(link->receive(packet), Reception::Packet);
    EXPECT_EQ(decode_refused(packet.bytes)->reason, "no");
    ASSERT_EQ(send(connection.get(), "something else", 14, 0), 14);
    endpoint->wait(Clock::now() + kLong, news);
    EXPECT_EQ(link->receive(packet), Reception::End);
}

TEST(Endpoint, forked_child_closes_its_own_only) {
    Place place;
    const std::shared_ptr<Link> theirs = place.connect();
    const std::shared_ptr<Link> ours = place.next();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        place.endpoint->close();
        _exit(ours->is_open() || place.endpoint->add(theirs) ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(theirs->send("alive"), Sending::Sent);
    EXPECT_EQ(place.next(), ours);
    EXPECT_EQ(content(*ours), "alive");
    const std::shared_ptr<Link> another = place.connect();
    EXPECT_NE(place.next(), ours);
}

TEST(Link, waits_for_room_until_the_deadline) {
    Place place;
    const std::shared_ptr<Link> theirs = place.connect();
    const std::shared_ptr<Link> ours = place.next();
    const Bytes much(kLongestPacketBytes / 2, 'x');
    while (theirs->send(much) == Sending::Sent) {
    }
    Sending outcome = Sending::Sent;
    EXPECT_EQ(theirs->send(much, {}, Clock::now() + 50ms, outcome), Status::Ok);
    EXPECT_EQ(outcome, Sending::Full);
    std::thread reader([&] { EXPECT_EQ(content(*ours), much); });
    EXPECT_EQ(theirs->send(much, {}, Clock::now() + kLong, outcome), Status::Ok);
    EXPECT_EQ(outcome, Sending::Sent);
    reader.join();
    std::thread closer([&] { ours->hang_up(); });
    while (outcome == Sending::Sent) {
        EXPECT_EQ(theirs->send(much, {}, Clock::now() + kLong, outcome), Status::Ok);
    }
    EXPECT_EQ(outcome, Sending::Failed);
    closer.join();
}

// Frames that a socket takes in part, or not at all, arrive whole and in order once the other side reads.
void expect_nothing_lost(Link& sender, Link& receiver) {
    constexpr std::uint64_t kCount = 200;
    std::uint64_t sent = 0;
    std::uint64_t heard = 0;
    bool was_kept = false;
    while (heard < kCount) {
        while (sent < kCount && sender.flush() == Sending::Sent) {
            ASSERT_TRUE(sender.send_or_keep(encode_notify(sent++, std::string(kMaxNotificationBytes, 'n'))));
        }
        was_kept |= sender.flush() == Sending::Full;
        Packet packet;
        const Reception reception = receiver.receive(packet);
        ASSERT_NE(reception, Reception::End);
        if (reception == Reception::Nothing) continue;
        const auto notify = decode_notify(packet.bytes);
        ASSERT_TRUE(notify.has_value()) << heard;
        EXPECT_EQ(notify->number, heard++);
        EXPECT_EQ(notify->data.size(), kMaxNotificationBytes);
    }
    EXPECT_TRUE(was_kept);
    receiver.close();
    while (sender.send_or_keep(encode(Hello{}))) sender.flush();  // false in the end
}

TEST(Link, keeps_what_a_unix_socket_does_not_take) {
    std::array<int, 2> ends{};
    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    Link sender(Link::Kind::Unix, OwnedFd(ends[0]));
    Link receiver(Link::Kind::Unix, OwnedFd(ends[1]));
    expect_nothing_lost(sender, receiver);
}

TEST(Link, keeps_what_a_stream_does_not_take) {
    std::array<int, 2> ends{};  // a stream behaves as TCP does
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    Link sender(Link::Kind::Tcp, OwnedFd(ends[0]));
    Link receiver(Link::Kind::Tcp, OwnedFd(ends[1]));
    expect_nothing_lost(sender, receiver);
}

TEST(Link, packets_that_are_too_long_or_too_full_arrive_empty) {
    Place place;
    const std::shared_ptr<Link> theirs = place.connect();
    const std::shared_ptr<Link> ours = place.next();
    EXPECT_EQ(theirs->send(Bytes(kLongestPacketBytes, 'x')), Sending::Sent);
    EXPECT_EQ(content(*ours).size(), kLongestPacketBytes);
    EXPECT_EQ(theirs->send(Bytes(kLongestPacketBytes + 1, 'x')), Sending::Sent);
    EXPECT_EQ(content(*ours), "");
}

// An empty packet is as good as the end; the kernel has made descriptors of what was enclosed all the same.
TEST(Link, descriptors_of_an_empty_packet_are_closed) {
    Place place;
    const std::shared_ptr<Link> theirs = place.connect();
    const std::shared_ptr<Link> ours = place.next();
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    const OwnedFd readable(ends[0]);
    {
        const OwnedFd writable(ends[1]);
        EXPECT_EQ(theirs->send("", std::array{writable.get()}), Sending::Sent);
    }
    Packet packet;
    EXPECT_EQ(ours->receive(packet), Reception::End);
    char byte = 0;
    EXPECT_EQ(read(readable.get(), &byte, 1), 0);  // nobody can write any more
}

}  // namespace
}  // namespace memfabric
