// SPDX-License-Identifier: Apache-2.0
//
// Where a process is met by others: its listening sockets and all of its links, watched together. Lets peers in as long
// as there are descriptors for them, says which links have news, and closes those that are dropped. What is said on a
// link is the owner's business.
//
//     while (...) {
//         endpoint->wait(until, news);
//         for (const auto& link : news.links) { link->receive(...); }
//     }
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/link.h"
#include "tls/identity.h"

namespace memfabric {

// Thread contract: `wait` from one thread, its owner's; everything else from any.
class MF_API Endpoint {
public:
    struct Listener {
        Link::Kind kind;
        OwnedFd fd;                                               // does not block
        std::shared_ptr<const tls::Identity> identity = nullptr;  // of TCP: its links are encrypted
    };
    // Peers that were let in and not trusted: how long they may stay, and how many of them. The oldest one makes room.
    struct Strangers {
        std::chrono::milliseconds time;
        std::size_t most;
    };
    static constexpr Strangers kEverybodyMayStay{std::chrono::milliseconds::max(), SIZE_MAX};
    static constexpr Strangers kMustSpeakSoon{std::chrono::seconds(3), 256};  // where other hosts can connect

    struct News {
        std::vector<std::shared_ptr<Link>>
            links;  // let in, with something to receive, at their end, or with room again
        bool woken = false;
    };

    static Status open(std::vector<Listener> listeners, Strangers strangers, std::shared_ptr<Endpoint>& opened);
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    void wait(Deadline until, News& news);  // returns early when there is some; at once when closed

    bool add(std::shared_ptr<Link> link);  // one that we made; false: it cannot be watched
    void trust(const Link& link);          // it may stay, and has news also when its socket has room again
    // While somebody else reads a link that we made: only its end is news.
    void mute(const Link& link);
    void unmute(const Link& link);
    void drop(Link& link);             // closes it, now; no news of it any more
    Link::Socket release(Link& link);  // it is the caller's; nothing if it was closed
    void wake();
    void close();  // and all of its links, when nobody waits any more. In a forked child nothing of the parent's ends

private:
    struct Entry {
        std::shared_ptr<Link> link;
        Deadline stranger_until = Deadline::max();
    };

    Endpoint(std::vector<Listener> listeners, Strangers strangers);
    Status watch_listeners();
    bool watch(int operation, int fd, std::uint32_t events, std::uint64_t id);
    void accept_all(const Listener& listener, News& news);
    OwnedFd accept_one(const Listener& listener);
    void pause_listening(int error);
    Deadline do_chores(Deadline now);
    void drop_strangers(Deadline now);
    void make_room();
    void restore_spare();
    void listen_again();
    void drop_locked(Link& link);
    Link::Socket release_locked(Link& link);

    const ForkGuard fork_guard_;
    const Strangers strangers_;
    std::mutex mutex_;  // guards everything below; no other is taken under it but a link's
    std::vector<Listener> listeners_;
    OwnedFd epoll_;
    OwnedFd wake_fd_;
    // In reserve: a process that has no other left still lets one peer in, which gets an answer that says so.
    OwnedFd spare_;
    bool paused_ = false;  // nobody is let in, for want of descriptors
    bool closed_ = false;
    std::unordered_map<std::uint64_t, Entry> links_;  // by id
};

}  // namespace memfabric
