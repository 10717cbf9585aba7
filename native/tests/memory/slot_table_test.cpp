// SPDX-License-Identifier: Apache-2.0
#include "memory/slot_table.h"

#include <memory>
#include <utility>

#include "memory/exported_memory.h"
#include "tests/assertions.h"
#include "tests/space/space_fixture.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

std::unique_ptr<SlotTable> made() {
    const Layout layout{free_range(2 * kMiB), 1, 2 * kMiB, 0};
    std::unique_ptr<Reservation> reservation;
    require_ok(Reservation::make(layout.base(), layout.size_bytes(), "bm object 7", reservation));
    return std::make_unique<SlotTable>(layout, 0, "bm object 7", std::move(reservation));
}

void attach_own(SlotTable& slots) {
    const File file(2 * kMiB);
    require_ok(slots.attach(0, Tier::Dram, file.fd(), 0, 0, 2 * kMiB));
}

std::size_t exported() { return ExportedMemory::process().all().size(); }

// Peers would write into a file that nobody sees when the addresses belong to something else.
TEST(SlotTable, exports_nothing_that_has_gone_with_it) {
    auto slots = made();
    attach_own(*slots);
    ASSERT_EQ(exported(), 1U);
    slots.reset();
    EXPECT_EQ(exported(), 0U);
}

TEST(SlotTable, exports_nothing_that_was_attached_while_it_was_closed) {
    const auto slots = made();
    slots->detach_all("the object was closed");
    attach_own(*slots);  // by another thread, which saw it open
    slots->release_addresses();
    EXPECT_EQ(exported(), 0U);
    const File file(2 * kMiB);
    EXPECT_EQ(slots->attach(0, Tier::Dram, file.fd(), 0, 0, 2 * kMiB), Status::InvalidParam);
}

}  // namespace
}  // namespace memfabric
