// SPDX-License-Identifier: Apache-2.0
#include "transfer/registrations/registration_page.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "memory/exported_memory.h"
#include "memory/memfd.h"
#include "sync/liveness_lease.h"
#include "tests/assertions.h"
#include "transfer/registrations/registrations.h"
#include "transports/peer_process.h"

namespace memfabric {
namespace {

std::shared_ptr<RegistrationPage> make_page() {
    std::shared_ptr<RegistrationPage> page;
    EXPECT_EQ(RegistrationPage::make(InstanceId{1, 2, 3}, page), Status::Ok);
    return page;
}

bool covers(const RegistrationPage& page, std::uint64_t address, std::uint64_t size_bytes,
            std::uint32_t* segment = nullptr) {
    RegistrationScan scan(const_cast<RegistrationPage&>(page).words());
    std::uint32_t found = kPrivateMemory;
    const bool covered = scan.covers(address, size_bytes, found);
    EXPECT_TRUE(scan.current());
    if (segment != nullptr) *segment = found;
    return covered;
}

TEST(RegistrationScan, agrees_with_a_model) {
    const auto page = make_page();
    EXPECT_FALSE(covers(*page, 0, 1));
    std::mt19937_64 random(5);
    std::vector<bool> model(4000);
    std::vector<Interval> intervals;
    for (std::uint64_t at = 10; at < 3900;) {
        const std::uint64_t size = 1 + random() % 20;
        intervals.push_back({at, at + size, kPrivateMemory});
        for (std::uint64_t i = at; i < at + size; ++i) model[i] = true;
        at += size + random() % 3;  // some of them touch
    }
    page->publish(intervals);
    for (std::uint64_t start = 0; start < 3950; ++start) {
        for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{17}, std::uint64_t{40}}) {
            bool expected = true;
            for (std::uint64_t i = start; i < start + size; ++i) expected = expected && model[i];
            EXPECT_EQ(covers(*page, start, size), expected) << size << " bytes at " << start;
        }
    }
    EXPECT_FALSE(covers(*page, 10, 0));
    EXPECT_FALSE(covers(*page, ~std::uint64_t{0} - 4, 8));
}

TEST(RegistrationScan, tells_segments_apart) {
    const auto page = make_page();
    page->publish(std::vector<Interval>{{100, 200, 7}, {200, 300, kPrivateMemory}});
    std::uint32_t segment = kPrivateMemory;
    EXPECT_TRUE(covers(*page, 100, 100, &segment));
    EXPECT_EQ(segment, 7U);
    EXPECT_TRUE(covers(*page, 150, 100, &segment));
    EXPECT_EQ(segment, kPrivateMemory);
}

// Readers beside a writer that flips without a pause: an answer that is said to be current is never a mixture.
TEST(RegistrationScan, is_never_torn) {
    const auto page = make_page();
    const auto publish = [&page](std::uint64_t turn) {
        const std::uint64_t base = 1000 * (turn % 7);
        page->publish(
            std::vector<Interval>{{base + 10, base + 20, kPrivateMemory}, {base + 30, base + 40, kPrivateMemory}});
    };
    publish(0);  // before anybody looks: from here on exactly one of the bases is registered
    std::atomic<bool> stopping{false};
    std::thread writer([&] {
        for (std::uint64_t turn = 1; turn < 20'000; ++turn) publish(turn);
        stopping.store(true);
    });
    std::uint64_t answers = 0;
    while (!stopping.load()) {
        RegistrationScan scan(page->words());
        std::uint32_t segment;
        int hits = 0;
        for (std::uint64_t base = 0; base < 7000; base += 1000) {
            const bool first = scan.covers(base + 10, 10, segment);
            const bool second = scan.covers(base + 30, 10, segment);
            if (scan.current()) {
                EXPECT_EQ(first, second);
            }
            hits += first ? 1 : 0;
        }
        if (scan.current()) {
            EXPECT_EQ(hits, 1);
            ++answers;
        }
    }
    writer.join();
    EXPECT_TRUE(answers > 0 || page->words().generation.load() == 20'000);
}

TEST(Registrations, merge_overlaps_and_cut_at_segments) {
    const auto page = make_page();
    Registrations registrations;
    OwnedFd file;
    SharedMapping mapping;
    ASSERT_EQ(make_memory_file("test", 64 * 1024, file), Status::Ok);
    ASSERT_EQ(SharedMapping::map(file.get(), 64 * 1024, true, mapping), Status::Ok);
    const auto base = reinterpret_cast<std::uint64_t>(mapping.address());
    const std::uint32_t id = ExportedMemory::process().add(base + 1000, 1000, file.get(), 1000);
    const std::uint32_t next = ExportedMemory::process().add(base + 2000, 500, file.get(), 2000);
    ASSERT_NE(id, 0);
    registrations.show_on(page.get(), std::make_shared<SegmentOffers>());
    const std::vector<std::uint64_t> starts{base, base + 500, base + 900, base + 5000};
    const std::vector<std::uint64_t> sizes{600, 500, 2000, 1};
    ASSERT_EQ(registrations.add(starts, sizes), Status::Ok);
    std::uint32_t segment = 0;
    EXPECT_TRUE(covers(*page, base, 2900, &segment));
    EXPECT_EQ(segment, kPrivateMemory);
    EXPECT_TRUE(covers(*page, base + 1000, 1000, &segment));
    EXPECT_EQ(segment, id);
    EXPECT_TRUE(covers(*page, base + 2000, 500, &segment));
    EXPECT_EQ(segment, next);
    EXPECT_TRUE(covers(*page, base + 1999, 2, &segment));
    EXPECT_EQ(segment, kPrivateMemory);
    EXPECT_FALSE(covers(*page, base, 2901));
    EXPECT_TRUE(covers(*page, base + 5000, 1));
    EXPECT_EQ(registrations.remove(std::vector<std::uint64_t>{base + 500, base + 501}), Status::NotExist);
    EXPECT_TRUE(covers(*page, base, 2900));
    EXPECT_EQ(registrations.remove(std::vector<std::uint64_t>{base + 900}), Status::Ok);
    EXPECT_TRUE(covers(*page, base, 1000));
    EXPECT_FALSE(covers(*page, base, 1001));
    EXPECT_TRUE(registrations.remove_inside(base + 550, base + 551));
    EXPECT_FALSE(registrations.remove_inside(base + 550, base + 551));
    EXPECT_FALSE(covers(*page, base, 1));
    EXPECT_EQ(registrations.count(), 1U);
    ExportedMemory::process().remove(next);
    ExportedMemory::process().remove(id);
}

TEST(Registrations, refuse_garbage) {
    Registrations registrations;
    std::byte good[16];
    const auto address = reinterpret_cast<std::uint64_t>(&good);
    void* closed = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> bad{
        {0, 16}, {address, 0}, {~std::uint64_t{0} - 8, 64}, {4096, 4096}, {address, std::uint64_t{1} << 50}};
    for (const auto& [start, size] : bad) {
        EXPECT_EQ(registrations.add(std::vector{address, start}, std::vector{std::uint64_t{16}, size}),
                  Status::InvalidParam);
        EXPECT_FALSE(take_last_error().empty());
    }
    EXPECT_EQ(registrations.count(), 0U);
    munmap(closed, 4096);
}

TEST(Registrations, refuse_holes_in_the_middle) {
    Registrations registrations;
    constexpr std::size_t kPages = 64;
    const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto* memory = static_cast<char*>(
        mmap(nullptr, kPages * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const std::vector<std::uint64_t> start{reinterpret_cast<std::uint64_t>(memory) + 5};
    const std::vector<std::uint64_t> size{kPages * page_bytes - 10};
    EXPECT_EQ(mprotect(memory + 20 * page_bytes, page_bytes, PROT_NONE), 0);
    EXPECT_EQ(registrations.add(start, size), Status::InvalidParam);
    EXPECT_EQ(registrations.count(), 0U);
    EXPECT_EQ(mprotect(memory + 20 * page_bytes, page_bytes, PROT_READ), 0);
    EXPECT_EQ(registrations.add(start, size), Status::Ok);
    munmap(memory, kPages * page_bytes);
}

TEST(RegistrationPage, life_word_follows_its_process) {
    const auto page = make_page();
    const PeerProcess process{getpid(), &page->life()};
    EXPECT_FALSE(process.alive());
    {
        std::unique_ptr<LivenessLease> lease;
        ASSERT_EQ(LivenessLease::start(page->life(), lease), Status::Ok);
        EXPECT_TRUE(process.alive());
    }
    EXPECT_FALSE(process.alive());
    const pid_t child = fork();
    if (child == 0) {
        std::unique_ptr<LivenessLease> lease;
        if (LivenessLease::start(page->life(), lease) != Status::Ok) _exit(1);
        if (page->life().load() == PeerProcess::kHolderMask)
            page->life().store(0);  // an emulator: nobody would wipe it
        raise(SIGKILL);
    }
    waitpid(child, nullptr, 0);
    EXPECT_FALSE(process.alive());
}

}  // namespace
}  // namespace memfabric
