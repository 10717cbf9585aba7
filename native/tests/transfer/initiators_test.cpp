// SPDX-License-Identifier: Apache-2.0
//
// Initiators of a session that lose their link, or their descriptors, while they are inside its memory.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/pause_point.h"
#include "endpoint/address.h"
#include "endpoint/frames.h"
#include "endpoint/packets.h"
#include "memory/exported_memory.h"
#include "memory/memfd.h"
#include "tests/assertions.h"
#include "tests/descriptor_limits.h"
#include "tests/transports/kernel_route.h"
#include "transfer/access_epochs.h"
#include "transfer/engine.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

constexpr std::uint64_t kTargetBytes = 1 << 16;

Welcome welcome_of(const std::string& session) {
    SessionAddress address;
    require_ok(SessionAddress::parse(session, address));
    OwnedFd connection;
    require_ok(connect_to(address, std::chrono::steady_clock::now() + 10s, connection));
    const Bytes hello = encode(Hello{});
    require(send(connection.get(), hello.data(), hello.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(hello.size()));
    require_ok(wait_for_socket(connection.get(), POLLIN, std::chrono::steady_clock::now() + 10s));
    Bytes answer(1024, 0);
    const ssize_t got = recv(connection.get(), answer.data(), answer.size(), 0);
    require(got > 0);
    answer.resize(static_cast<std::size_t>(got));
    return decode_welcome(answer).value();
}

// An initiator by hand: a link, and an epochs page of which the first slot is ours.
struct Initiator {
    OwnedFd link;
    SharedMapping page;

    explicit Initiator(const std::string& session) {
        OwnedFd file;
        require_ok(make_memory_file("memfabric-epochs", sizeof(EpochWords), file));
        require_ok(SharedMapping::map(file.get(), sizeof(EpochWords), true, page));
        const Welcome welcome = welcome_of(session);
        require_ok(connect_abstract(welcome.unix_name, link));
        const Bytes attach = encode(Attach{welcome.secret, InstanceId{9}, "initiator"});
        require(send_packet(link.get(), attach, std::array{file.get()}) == Sending::Sent);
        require_ok(wait_for_socket(link.get(), POLLIN, std::chrono::steady_clock::now() + 10s));
        Packet answer;
        require(receive_packet(link.get(), answer) == Reception::Packet);
        words().used.store(1);
        slot().target.store(target_id(welcome.instance));
    }
    EpochWords& words() const { return *reinterpret_cast<EpochWords*>(page.address()); }
    EpochWords::ThreadSlot& slot() const { return words().slots[0]; }
};

struct Target {
    std::shared_ptr<TransferEngine> engine = std::make_shared<TransferEngine>();
    std::vector<char> memory = std::vector<char>(kTargetBytes);

    explicit Target(std::chrono::milliseconds timeout) { require_ok(engine->open("127.0.0.1:0", timeout, "host")); }
    // Registers and unregisters: the second waits for whoever is inside.
    Status wait_for_initiators() {
        const std::array start{reinterpret_cast<std::uint64_t>(memory.data())};
        require_ok(engine->register_memory(start, std::array{std::uint64_t{kTargetBytes}}));
        return engine->unregister_memory(start);
    }
};

TEST(Initiators, session_waits_for_an_initiator_that_lost_its_link_inside) {
    Target target(50ms);
    const Initiator initiator(target.engine->session());
    initiator.slot().epoch.store(1);
    EXPECT_EQ(target.wait_for_initiators(), Status::Timeout);
    shutdown(initiator.link.get(), SHUT_RDWR);
    for (int turn = 0; turn < 3; ++turn) {  // whether or not the session has noticed
        EXPECT_EQ(target.wait_for_initiators(), Status::Timeout);
        EXPECT_TRUE(says("still inside a transfer"));
    }
    initiator.slot().epoch.store(2);
    EXPECT_EQ(target.wait_for_initiators(), Status::Ok);
    initiator.slot().epoch.store(3);  // it entered again before it noticed
    EXPECT_EQ(target.wait_for_initiators(), Status::Timeout);
}

// A process with an initiator that is inside for good, until `end` has run there or the process is killed. It is made
// before this process has threads.
class InitiatorProcess {
public:
    explicit InitiatorProcess(void (*end)()) {
        std::array<int, 2> ends{};
        require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
        pid_ = fork();
        require(pid_ >= 0);
        if (pid_ == 0) initiate(ends[1], end);
        ::close(ends[1]);
        line_.reset(ends[0]);
    }
    ~InitiatorProcess() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    InitiatorProcess(const InitiatorProcess&) = delete;
    InitiatorProcess& operator=(const InitiatorProcess&) = delete;

    void enter(const TransferEngine& engine) const {
        const std::string session = engine.session();
        require(write(line_.get(), session.data(), session.size()) == static_cast<ssize_t>(session.size()));
        char inside = 0;
        require(read(line_.get(), &inside, 1) == 1);
    }
    // Returns when `end` has begun to have its effect: descriptors that are closed on exec are closed.
    void go_on() const {
        require(write(line_.get(), "!", 1) == 1);
        char nothing = 0;
        require(read(line_.get(), &nothing, 1) == 0);
    }
    pid_t pid() const { return pid_; }

private:
    [[noreturn]] static void initiate(int line, void (*end)()) {
        std::string session(64, 0);
        const ssize_t got = read(line, session.data(), session.size());
        session.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        try {
            const Initiator initiator(session);
            initiator.slot().epoch.store(1);
            char word = 'i';
            if (write(line, &word, 1) == 1 && read(line, &word, 1) == 1) end();
        } catch (const ::testing::AssertionException&) {
        }
        _exit(1);
    }

    pid_t pid_ = -1;
    OwnedFd line_;
};

TEST(Initiators, session_does_not_wait_for_an_initiator_that_died_inside) {
    const InitiatorProcess initiating([] { pause(); });
    Target target(60s);
    initiating.enter(*target.engine);
    kill(initiating.pid(), SIGKILL);
    EXPECT_EQ(target.wait_for_initiators(), Status::Ok);
}

TEST(Initiators, session_does_not_wait_for_an_initiator_that_became_another_program_inside) {
    const InitiatorProcess initiating([] { execl("/bin/sleep", "sleep", "100", nullptr); });
    Target target(60s);
    initiating.enter(*target.engine);
    initiating.go_on();
    EXPECT_EQ(target.wait_for_initiators(), Status::Ok);
}

TEST(Initiators, session_waits_for_an_initiating_process_that_lost_its_link) {
    const InitiatorProcess initiating([] {
        close_range(3, ~0U, 0);
        pause();
    });
    Target target(50ms);
    initiating.enter(*target.engine);
    initiating.go_on();
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(target.wait_for_initiators(), Status::Timeout);
}

// Memory that peers can map: of one page, which is registered without looking into files of the kernel.
struct Shown {
    static constexpr std::uint64_t kPageBytes = 4096;
    OwnedFd file;
    SharedMapping mapping;
    std::uint32_t range = 0;

    Shown() {
        require_ok(make_memory_file("test", kPageBytes, file));
        require_ok(SharedMapping::map(file.get(), kPageBytes, true, mapping));
        range = ExportedMemory::process().add(address(), kPageBytes, file.get(), 0);
        require(range != 0);
    }
    ~Shown() { ExportedMemory::process().remove(range); }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

    Status announce(TransferEngine& engine) const {
        return engine.register_memory(std::array{address()}, std::array{std::uint64_t{kPageBytes}});
    }
    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(mapping.address()); }
};

TEST(Initiators, session_goes_on_when_its_initiator_has_no_descriptor_left) {
    if (!kernel_moves_memory()) GTEST_SKIP() << kNoKernelRoute;
    if (kSanitizerNeedsDescriptors) GTEST_SKIP() << kNoneToSpare;
    Target target(60s);
    const auto initiator = std::make_shared<TransferEngine>();
    ASSERT_EQ(initiator->open("127.0.0.1:0", 60s, "host"), Status::Ok);
    const std::array<Shown, 3> shown;
    const std::string session = target.engine->session();
    ASSERT_EQ(shown[0].announce(*target.engine), Status::Ok);
    const std::vector<char> source(Shown::kPageBytes, 'x');
    const auto write = [&](const Shown& place) {
        return initiator->transfer(Direction::Write, session, reinterpret_cast<std::uint64_t>(source.data()),
                                   place.address(), Shown::kPageBytes);
    };
    ASSERT_EQ(write(shown[0]), Status::Ok);
    const NoDescriptorLeft none;  // from here on a link that is lost cannot be dialled again
    for (const Shown& place : shown) {
        ASSERT_EQ(place.announce(*target.engine), Status::Ok);
        for (int turn = 0; turn < 200; ++turn) ASSERT_EQ(write(place), Status::Ok);
        EXPECT_EQ(std::memcmp(place.mapping.address(), source.data(), Shown::kPageBytes), 0);
    }
}

// The session's thread is one of a plain user, too: threads inherit that from whoever starts them.
TEST(Initiators, session_is_reached_once_fewer_descriptors_are_in_flight) {
    const auto initiator = std::make_shared<TransferEngine>();
    ASSERT_EQ(initiator->open("127.0.0.1:0", 60s, "host"), Status::Ok);
    std::unique_ptr<Target> target;
    std::unique_ptr<FewDescriptorsInFlight> few;
    std::thread([&] {
        const PlainUserThread plain;
        target = std::make_unique<Target>(60s);
        few = std::make_unique<FewDescriptorsInFlight>();
    }).join();
    Status probed = Status::Error;
    PausePoint::hold("transfer.crowded");
    std::thread prober([&] { probed = initiator->probe(target->engine->session()); });
    EXPECT_TRUE(PausePoint::wait_until_held("transfer.crowded", 20s));
    few.reset();
    PausePoint::release("transfer.crowded");
    prober.join();
    EXPECT_EQ(probed, Status::Ok);
}

}  // namespace
}  // namespace memfabric
