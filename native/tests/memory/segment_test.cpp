// SPDX-License-Identifier: Apache-2.0
#include "memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/assertions.h"
#include "tests/descriptor_limits.h"
#include "tests/space/space_fixture.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

TEST(Segment, has_its_size_for_good) {
    const File file(4 * kMiB);
    struct stat status{};
    ASSERT_EQ(fstat(file.fd(), &status), 0);
    EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), 4 * kMiB);
    EXPECT_NE(ftruncate(file.fd(), 2 * kMiB), 0);
    EXPECT_NE(ftruncate(file.fd(), 8 * kMiB), 0);
    EXPECT_NE(fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

// Most machines have no huge pages set aside: then ordinary ones, and the answer says so.
TEST(Segment, says_which_pages_it_got) {
    Segment segment;
    ASSERT_EQ(create_segment({2 * kMiB, true}, segment), Status::Ok);
    struct stat status{};
    ASSERT_EQ(fstat(segment.fd, &status), 0);
    EXPECT_EQ(segment.page_bytes, static_cast<std::uint64_t>(status.st_blksize));
    void* memory = mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    ASSERT_NE(memory, MAP_FAILED);
    static_cast<char*>(memory)[2 * kMiB - 1] = 1;
    munmap(memory, 2 * kMiB);
    ::close(segment.fd);
}

TEST(Segment, refuses_what_cannot_be) {
    Segment segment;
    EXPECT_EQ(create_segment({0, false}, segment), Status::InvalidParam);
    EXPECT_EQ(create_segment({2 * kMiB + 4096, false}, segment), Status::InvalidParam);
    EXPECT_EQ(create_segment({std::uint64_t{1} << 60, false}, segment), Status::MallocFailed);
    EXPECT_TRUE(says("of memory and swap"));
    EXPECT_EQ(create_segment({2 * kMiB, false, 4096, true}, segment), Status::InvalidParam);
    EXPECT_TRUE(says("NUMA node 4096"));
    EXPECT_EQ(segment.fd, -1);
}

TEST(Segment, without_a_descriptor_is_refused_with_advice) {
    if (kSanitizerNeedsDescriptors) GTEST_SKIP() << kNoneToSpare;
    Segment segment;
    {
        const NoDescriptorLeft limit;
        EXPECT_EQ(create_segment({2 * kMiB, true}, segment), Status::NoResources);
    }
    EXPECT_TRUE(says("ulimit -n"));
    EXPECT_EQ(segment.fd, -1);
}

// Whether this machine lets us choose nodes or not: a wish never fails, and a demand fails with a sentence.
TEST(Segment, honours_numa_wishes) {
    Segment wished;
    EXPECT_EQ(create_segment({2 * kMiB, false, 0, false}, wished), Status::Ok);
    ::close(wished.fd);
    Segment unlikely;
    EXPECT_EQ(create_segment({2 * kMiB, false, 777, false}, unlikely), Status::Ok);
    ::close(unlikely.fd);
    Segment impossible;
    EXPECT_NE(create_segment({2 * kMiB, false, 777, true}, impossible), Status::Ok);
    EXPECT_TRUE(says("NUMA node 777"));
    EXPECT_EQ(impossible.fd, -1);
}

}  // namespace
}  // namespace memfabric
