// SPDX-License-Identifier: Apache-2.0
//
// The queue by itself, and engines of one process that notify each other through real sockets, as neighbours and as
// engines of two hosts.
#include "transfer/notifications.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "base/limits.h"
#include "base/pause_point.h"
#include "tests/assertions.h"
#include "transfer/engine.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

constexpr std::size_t kAll = SIZE_MAX;

std::vector<Notification> taken(Notifications& queue, std::size_t most = kAll) {
    std::vector<Notification> all;
    EXPECT_EQ(queue.take(most, all), Status::Ok);
    return all;
}

TEST(Notifications, are_taken_in_order_and_once) {
    Notifications queue;
    for (const char* data : {"a", "b", "c"}) EXPECT_EQ(queue.put("peer", data), NotifyVerdict::Queued);
    const std::vector<Notification> first = taken(queue, 2);
    ASSERT_EQ(first.size(), 2U);
    EXPECT_EQ(first[0].data + first[1].data, "ab");
    EXPECT_EQ(taken(queue).front().data, "c");
    EXPECT_TRUE(taken(queue).empty());
}

TEST(Notifications, are_bounded_by_number_and_bytes) {
    Notifications queue;
    for (std::uint32_t i = 0; i < kMaxQueuedNotifications; ++i) {
        ASSERT_EQ(queue.put("peer", ""), NotifyVerdict::Queued) << i;
    }
    EXPECT_EQ(queue.put("peer", ""), NotifyVerdict::TooMany);
    EXPECT_EQ(taken(queue).size(), kMaxQueuedNotifications);
    for (std::uint32_t bytes = 0; bytes < kMaxQueuedNotificationBytes; bytes += kMaxNotificationBytes) {
        ASSERT_EQ(queue.put("peer", Bytes(kMaxNotificationBytes, 'x')), NotifyVerdict::Queued) << bytes;
    }
    EXPECT_EQ(queue.put("peer", "x"), NotifyVerdict::TooManyBytes);
    taken(queue, 1);
    EXPECT_EQ(queue.put("peer", "x"), NotifyVerdict::Queued);
}

TEST(Notifications, belong_to_the_callback_or_to_others) {
    Notifications queue;
    Notification next;
    queue.give_to_callback(true);
    EXPECT_EQ(queue.put("peer", "callback's"), NotifyVerdict::Queued);
    std::vector<Notification> none;
    EXPECT_EQ(queue.take(kAll, none), Status::ResourceInUse);
    EXPECT_TRUE(says("set_notification_callback(None)"));
    ASSERT_TRUE(queue.wait(next));
    EXPECT_EQ(next.data, "callback's");
    queue.give_to_callback(false);
    EXPECT_EQ(queue.put("peer", "others'"), NotifyVerdict::Queued);
    std::thread waiting([&] { EXPECT_FALSE(queue.wait(next)); });  // ends with the queue, without what is not its own
    queue.close();
    waiting.join();
    EXPECT_EQ(queue.put("peer", "late"), NotifyVerdict::Closed);
    EXPECT_EQ(taken(queue).front().data, "others'");
}

TEST(Notifications, wake_event_loops) {
    Notifications queue;
    std::shared_ptr<Notifier> notifier;
    ASSERT_EQ(Notifier::make(notifier), Status::Ok);
    const auto woken_by = [&](auto what) {
        queue.listen(notifier, 7);
        EXPECT_TRUE(notifier->take().empty());
        what();
        return notifier->take().size();
    };
    EXPECT_EQ(woken_by([&] { queue.put("peer", "x"); }), 1U);
    queue.listen(notifier, 8);  // there is one already
    EXPECT_EQ(notifier->take(), std::vector<std::uint64_t>{8});
    taken(queue);
    EXPECT_EQ(woken_by([&] { queue.wake(); }), 1U);
    EXPECT_EQ(woken_by([&] { queue.give_to_callback(true); }), 1U);
    queue.give_to_callback(false);
    EXPECT_EQ(woken_by([&] { queue.close(); }), 1U);
}

// The same twice: neighbours, and engines of two hosts, which are reached over TCP.
class EngineNotifications : public ::testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        require_ok(one->open("127.0.0.1:0", 30s, "one host"));
        require_ok(other->open("127.0.0.1:0", 30s, GetParam()));
    }

    std::shared_ptr<TransferEngine> one = std::make_shared<TransferEngine>();
    std::shared_ptr<TransferEngine> other = std::make_shared<TransferEngine>();
};

INSTANTIATE_TEST_SUITE_P(Hosts, EngineNotifications, ::testing::Values("one host", "another host"));

TEST_P(EngineNotifications, are_in_the_queue_when_the_call_returns) {
    ASSERT_EQ(one->notify(other->session(), "word"), Status::Ok) << take_last_error();
    const std::vector<Notification> all = taken(*other->notifications());
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].session, one->session());
    EXPECT_EQ(all[0].data, "word");
    EXPECT_EQ(one->notify(other->session(), Bytes(kMaxNotificationBytes + 1, 'x')), Status::InvalidParam);
}

TEST_P(EngineNotifications, of_several_threads_keep_each_ones_order) {
    constexpr int kEach = 300;
    std::vector<std::thread> threads;
    for (char name : {'a', 'b', 'c'}) {
        threads.emplace_back([&, name] {
            for (int i = 0; i < kEach; ++i) {
                EXPECT_EQ(one->notify(other->session(), name + std::to_string(i)), Status::Ok) << take_last_error();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<int> next(3, 0);
    for (const Notification& notification : taken(*other->notifications())) {
        EXPECT_EQ(std::stoi(notification.data.substr(1)), next[static_cast<std::size_t>(notification.data[0] - 'a')]++);
    }
    EXPECT_EQ(next, std::vector<int>(3, kEach));
}

TEST_P(EngineNotifications, both_ways_at_once) {
    const auto send = [](TransferEngine& from, TransferEngine& to) {
        for (int i = 0; i < 300; ++i) {
            EXPECT_EQ(from.notify(to.session(), Bytes(static_cast<std::size_t>(i) * 100, 'x')), Status::Ok)
                << take_last_error();
        }
    };
    std::thread back([&] { send(*other, *one); });
    send(*one, *other);
    back.join();
    EXPECT_EQ(taken(*one->notifications()).size(), 300U);
    EXPECT_EQ(taken(*other->notifications()).size(), 300U);
}

TEST_P(EngineNotifications, end_when_the_peer_closes) {
    ASSERT_EQ(one->probe(other->session()), Status::Ok);
    PausePoint::hold("transfer.notify.sent");
    std::atomic<Status> outcome{Status::Error};
    const std::string session = other->session();
    std::thread notifying([&] { outcome.store(one->notify(session, "word")); });
    ASSERT_TRUE(PausePoint::wait_until_held("transfer.notify.sent", 20s));
    other->close();
    PausePoint::release("transfer.notify.sent");
    notifying.join();
    // The peer may have taken it before its end.
    EXPECT_TRUE(outcome.load() == Status::NotConnected || outcome.load() == Status::Ok);
    EXPECT_EQ(one->notify(session, "word"), Status::NotConnected);
}

TEST_P(EngineNotifications, go_with_a_write) {
    std::uint64_t place = 0;
    ASSERT_EQ(other->allocate(4096, place), Status::Ok);
    const Bytes source(4096, 's');
    const auto from = reinterpret_cast<std::uint64_t>(source.data());
    std::uint64_t size_bytes = source.size();
    ASSERT_EQ(one->write_batch_and_notify(other->session(), {{&from, 1}, {&place, 1}, {&size_bytes, 1}}, "word"),
              Status::Ok)
        << take_last_error();
    EXPECT_EQ(taken(*other->notifications()).size(), 1U);
    EXPECT_EQ(Bytes(reinterpret_cast<char*>(place), 4096), source);
    ++size_bytes;
    EXPECT_EQ(one->write_batch_and_notify(other->session(), {{&from, 1}, {&place, 1}, {&size_bytes, 1}}, "word"),
              Status::InvalidParam);
    EXPECT_TRUE(taken(*other->notifications()).empty());
}

}  // namespace
}  // namespace memfabric
