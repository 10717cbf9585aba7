// SPDX-License-Identifier: Apache-2.0
#include "sync/rcu.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tests/assertions.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;

bool ready(const std::future<void>& future, std::chrono::milliseconds within) {
    return future.wait_for(within) == std::future_status::ready;
}

// A thread that holds a guard until told to go on.
class Reader {
public:
    explicit Reader(void (*in_between)(rcu::ReadGuard&) = nullptr) {
        std::promise<void> entered;
        std::future<void> is_inside = entered.get_future();
        thread_ = std::thread([this, in_between, entered = std::move(entered)]() mutable {
            rcu::ReadGuard guard;
            entered.set_value();
            go_on_.get_future().wait();
            if (in_between != nullptr) {
                in_between(guard);
                leave_.get_future().wait();
            }
        });
        is_inside.wait();
    }
    ~Reader() { thread_.join(); }
    void go_on() { go_on_.set_value(); }
    void leave() { leave_.set_value(); }

private:
    std::promise<void> go_on_;
    std::promise<void> leave_;
    std::thread thread_;
};

// A writer whose grace period has begun: whoever enters from now on, enters later.
std::future<void> begun_writer() {
    const std::uint64_t before = rcu::detail::epoch.load();
    auto writer = std::async(std::launch::async, [] { rcu::synchronize(); });
    while (rcu::detail::epoch.load() == before) std::this_thread::yield();
    return writer;
}

TEST(Rcu, does_not_wait_without_readers) {
    {
        const rcu::ReadGuard guard;
    }
    rcu::synchronize();
}

TEST(Rcu, waits_for_a_reader_that_was_inside) {
    Reader reader;
    auto writer = begun_writer();
    EXPECT_FALSE(ready(writer, 20ms));
    reader.go_on();
    EXPECT_TRUE(ready(writer, 60s));
}

TEST(Rcu, ignores_readers_that_enter_later) {
    auto first = std::make_unique<Reader>();
    auto writer = begun_writer();
    EXPECT_FALSE(ready(writer, 20ms));
    Reader second;
    first->go_on();
    EXPECT_TRUE(ready(writer, 60s));
    second.go_on();
}

TEST(Rcu, leaving_early_lets_the_writer_pass) {
    Reader reader([](rcu::ReadGuard& guard) { guard.leave(); });
    auto writer = begun_writer();
    EXPECT_FALSE(ready(writer, 20ms));
    reader.go_on();
    EXPECT_TRUE(ready(writer, 60s));
    reader.leave();
}

TEST(Rcu, inner_guards_change_nothing) {
    Reader reader([](rcu::ReadGuard&) {
        rcu::ReadGuard inner;
        inner.leave();
    });
    auto writer = begun_writer();
    reader.go_on();
    EXPECT_FALSE(ready(writer, 20ms));
    reader.leave();
    EXPECT_TRUE(ready(writer, 60s));
}

// Readers follow a pointer that a writer replaces and poisons: a use after the grace period would see the poison, and
// the sanitizers a race.
TEST(Rcu, protects_what_threads_come_and_go_read) {
    struct Thing {
        std::array<int, 16> values;
    };
    std::atomic<Thing*> current{new Thing{}};
    std::atomic<bool> stop{false};
    std::atomic<int> poisoned{0};
    std::atomic<int> reads{0};
    const auto read = [&](int times) {
        for (int i = 0; i < times; ++i) {
            const rcu::ReadGuard guard;
            const Thing* thing = current.load(std::memory_order_seq_cst);
            for (const int value : thing->values) poisoned += value;
            ++reads;
        }
    };
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
        while (!stop) read(100);
    });
    threads.emplace_back([&] {
        while (!stop) std::thread([&] { read(20); }).join();
    });
    for (int i = 0; i < 1000 || reads < 1000; ++i) {
        Thing* old = current.exchange(new Thing{}, std::memory_order_seq_cst);
        rcu::synchronize();
        old->values.fill(1);
        delete old;
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    delete current.load();
    EXPECT_EQ(poisoned.load(), 0);
}

TEST(Rcu, in_a_forked_child_forgets_the_parents_readers) {
    Reader reader;
    const pid_t child = fork();
    if (child == 0) {
        alarm(5);
        rcu::synchronize();
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    reader.go_on();
}

}  // namespace
}  // namespace memfabric
