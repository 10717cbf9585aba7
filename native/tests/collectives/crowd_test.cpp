// SPDX-License-Identifier: Apache-2.0
//
// More ranks than cores, as real processes. Nothing wakes a sleeper but the notification it needs: one that is lost
// becomes a time-out here.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/last_error.h"
#include "collectives/host_group.h"
#include "tests/assertions.h"
#include "tests/become_test.h"

using namespace memfabric;
using namespace memfabric::tests;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 30s;

// A process of its own can say it only there.
int report(std::uint32_t rank, std::uint32_t round, int what) {
    std::fprintf(stderr, "rank %u, round %u: %s\n", rank, round, last_error().c_str());
    return what;
}

// 0 if every round succeeded and had everybody's data of that round.
int take_part(const std::shared_ptr<ControlPage>& page, std::uint32_t rank, std::uint32_t ranks, std::uint32_t rounds) {
    std::vector<std::uint32_t> members(ranks);
    for (std::uint32_t i = 0; i < ranks; ++i) members[i] = i;
    std::unique_ptr<HostGroup> group;
    if (HostGroup::join(page, {rank, ranks, members, "shm object 0"}, group) != Status::Ok) return 1;
    std::vector<std::uint32_t> all(ranks);
    for (std::uint32_t round = 0; round < rounds; ++round) {
        if (group->barrier(kPatience, nullptr) != Status::Ok) return report(rank, round, 2);
        const std::uint32_t mine = rank ^ round << 8;
        if (group->all_gather(reinterpret_cast<const std::byte*>(&mine), sizeof mine,
                              reinterpret_cast<std::byte*>(all.data()), kPatience, nullptr) != Status::Ok) {
            return report(rank, round, 3);
        }
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
            if (all[peer] != (peer ^ round << 8)) return 4;
        }
    }
    while (group->barrier(kPatience, nullptr) == Status::Ok && rank == 0) break;  // the last one to need it leaves last
    return 0;
}

struct Part {
    int fd;  // of the page
    std::uint32_t rank;
    std::uint32_t ranks;
    std::uint32_t rounds;
};

[[noreturn]] void play(const Part& part) {
    std::shared_ptr<ControlPage> page;
    const Status status = ControlPage::open(part.fd, part.ranks, page);
    _exit(status == Status::Ok ? take_part(page, part.rank, part.ranks, part.rounds) : 5);
}

#if defined(__SANITIZE_THREAD__)
constexpr char kPart[] = "MF_TEST_CROWD_PART";

// TSan knows no child of a process with threads, and earlier tests may have left some: a program of its own.
[[noreturn]] void become_member(const Part& part) {
    const int fd = dup(part.fd);  // which stays open
    const std::string text = std::to_string(fd) + " " + std::to_string(part.rank) + " " + std::to_string(part.ranks) +
                             " " + std::to_string(part.rounds);
    setenv(kPart, text.c_str(), 1);
    become_test("CrowdMember.DISABLED_plays_its_part");
}

TEST(CrowdMember, DISABLED_plays_its_part) {
    Part part{};
    std::istringstream(std::getenv(kPart)) >> part.fd >> part.rank >> part.ranks >> part.rounds;
    play(part);
}
#else
[[noreturn]] void become_member(const Part& part) { play(part); }
#endif

void run_crowd(std::uint32_t ranks, std::uint32_t rounds) {
    int fd = -1;
    require_ok(ControlPage::create(ranks, fd));
    std::vector<pid_t> children;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const pid_t child = fork();
        if (child == 0) become_member({fd, rank, ranks, rounds});
        require(child > 0);
        children.push_back(child);
    }
    ::close(fd);
    for (const pid_t child : children) {
        int status = -1;
        require(waitpid(child, &status, 0) == child);
        EXPECT_EQ(status, 0);
    }
}

}  // namespace

TEST(Crowd, of_8_processes_keeps_step) { run_crowd(8, 500); }

TEST(Crowd, of_32_processes_keeps_step) { run_crowd(32, 60); }
