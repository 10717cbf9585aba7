// SPDX-License-Identifier: Apache-2.0
#include "memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/last_error.h"
#include "tests/check.h"
#include "tests/descriptor_limits.h"
#include "tests/space/space_fixture.h"

namespace memfabric {
namespace {

using namespace memfabric::testing;

TEST(segment_has_its_size_for_good) {
    const File file(4 * kMiB);
    struct stat status{};
    REQUIRE(fstat(file.fd(), &status) == 0);
    CHECK_EQ(static_cast<std::uint64_t>(status.st_size), 4 * kMiB);
    CHECK(ftruncate(file.fd(), 2 * kMiB) != 0);
    CHECK(ftruncate(file.fd(), 8 * kMiB) != 0);
    CHECK((fcntl(file.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

// Most machines have no huge pages set aside: then ordinary ones, and the answer says so.
TEST(segment_says_which_pages_it_got) {
    Segment segment;
    REQUIRE_EQ(create_segment({2 * kMiB, true}, segment), Status::Ok);
    struct stat status{};
    REQUIRE(fstat(segment.fd, &status) == 0);
    CHECK_EQ(segment.page_bytes, static_cast<std::uint64_t>(status.st_blksize));
    void* memory = mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    REQUIRE(memory != MAP_FAILED);
    static_cast<char*>(memory)[2 * kMiB - 1] = 1;
    munmap(memory, 2 * kMiB);
    ::close(segment.fd);
}

TEST(segment_refuses_what_cannot_be) {
    Segment segment;
    CHECK_EQ(create_segment({0, false}, segment), Status::InvalidParam);
    CHECK_EQ(create_segment({2 * kMiB + 4096, false}, segment), Status::InvalidParam);
    CHECK_EQ(create_segment({std::uint64_t{1} << 60, false}, segment), Status::MallocFailed);
    CHECK(says("of memory and swap"));
    CHECK_EQ(create_segment({2 * kMiB, false, 4096, true}, segment), Status::InvalidParam);
    CHECK(says("NUMA node 4096"));
    CHECK_EQ(segment.fd, -1);
}

TEST(segment_without_a_descriptor_is_refused_with_advice) {
    if (kSanitizerNeedsDescriptors) return;
    Segment segment;
    {
        const NoDescriptorLeft limit;
        CHECK_EQ(create_segment({2 * kMiB, true}, segment), Status::NoResources);
    }
    CHECK(says("ulimit -n"));
    CHECK_EQ(segment.fd, -1);
}

// Whether this machine lets us choose nodes or not: a wish never fails, and a demand fails with a sentence.
TEST(segment_honours_numa_wishes) {
    Segment wished;
    CHECK_EQ(create_segment({2 * kMiB, false, 0, false}, wished), Status::Ok);
    ::close(wished.fd);
    Segment unlikely;
    CHECK_EQ(create_segment({2 * kMiB, false, 777, false}, unlikely), Status::Ok);
    ::close(unlikely.fd);
    Segment impossible;
    CHECK(create_segment({2 * kMiB, false, 777, true}, impossible) != Status::Ok);
    CHECK(says("NUMA node 777"));
    CHECK_EQ(impossible.fd, -1);
}

}  // namespace
}  // namespace memfabric
