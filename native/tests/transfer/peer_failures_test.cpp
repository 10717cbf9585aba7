// SPDX-License-Identifier: Apache-2.0
#include "transfer/peer_failures.h"

#include <string>
#include <vector>

#include "endpoint/instance_id.h"
#include "tests/assertions.h"

namespace memfabric {
namespace {

std::vector<std::string> told(PeerFailures& failures) {
    failures.close();
    std::vector<std::string> sessions;
    for (std::string session; failures.wait(session);) sessions.push_back(session);
    return sessions;
}

InstanceId instance(std::uint8_t number) { return InstanceId{number}; }

using Sessions = std::vector<std::string>;

TEST(PeerFailures, tells_one_end_of_several_links_once) {
    PeerFailures failures;
    failures.listen();
    const auto one = failures.begin_link(), other = failures.begin_link();
    failures.report("a", instance(1), one);
    failures.report("as it calls itself", instance(1), other);
    EXPECT_EQ(told(failures), Sessions{"a"});
}

TEST(PeerFailures, tells_the_end_of_a_peer_that_has_come_back) {
    PeerFailures failures;
    failures.listen();
    const auto first = failures.begin_link(), late = failures.begin_link();
    failures.report("a", instance(1), first);
    std::string session;
    ASSERT_TRUE(failures.wait(session));
    const auto second = failures.begin_link();
    failures.report("a", instance(1), late);  // of before: it is there now
    failures.report("b", instance(2), failures.begin_link());
    failures.report("a", instance(1), second);
    EXPECT_EQ(told(failures), (Sessions{"b", "a"}));
}

TEST(PeerFailures, keeps_no_more_than_somebody_may_still_ask_for) {
    PeerFailures failures;
    failures.listen();
    for (int i = 0; i < 10'000; ++i) {
        InstanceId peer{};
        peer[0] = static_cast<std::uint8_t>(i);
        peer[1] = static_cast<std::uint8_t>(i >> 8);
        failures.report(std::to_string(i % 5000), peer, failures.begin_link());
    }
    EXPECT_EQ(told(failures).size(), 4096U);
}

}  // namespace
}  // namespace memfabric
