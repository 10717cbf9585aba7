// SPDX-License-Identifier: Apache-2.0
//
// What somebody who only pretends to be a target can show to who attaches.
#include "transfer/dialling.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "endpoint/endpoint.h"
#include "endpoint/frames.h"
#include "tests/assertions.h"
#include "transfer/engine.h"
#include "transfer/registrations/registration_page.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

// Speaks the frames of a target on this host, and shows a copy of a registration page, sealed or not.
class Pretender {
public:
    explicit Pretender(bool is_sealed) {
        fill_random(instance_);
        copy_page(is_sealed);
        OwnedFd holder;
        std::vector<Endpoint::Listener> listeners;
        listeners.push_back({Link::Kind::Tcp, OwnedFd()});
        listeners.push_back({Link::Kind::Unix, OwnedFd()});
        require_ok(reserve_port(holder, address_.port));
        require_ok(listen_at(address_, listeners[0].fd));
        require_ok(listen_abstract(name(), listeners[1].fd));
        require_ok(Endpoint::open(std::move(listeners), Endpoint::kEverybodyMayStay, endpoint_));
        thread_ = std::thread([this] { serve(); });
    }
    ~Pretender() {
        stopping_ = true;
        endpoint_->wake();
        thread_.join();
    }
    Pretender(const Pretender&) = delete;
    Pretender& operator=(const Pretender&) = delete;

    std::string session() const { return address_.text(); }

private:
    std::string name() const { return "memfabric-test-" + hexadecimal(instance_); }

    void copy_page(bool is_sealed) {
        std::shared_ptr<RegistrationPage> page;
        require_ok(RegistrationPage::make(instance_, page));
        std::array<char, 4096> head;
        require(pread(page->shown_fd(), head.data(), head.size(), 0) == static_cast<ssize_t>(head.size()));
        page_.reset(memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        require(ftruncate(page_.get(), RegistrationWords::kPageBytes) == 0);
        require(pwrite(page_.get(), head.data(), head.size(), 0) == static_cast<ssize_t>(head.size()));
        require(!is_sealed || fcntl(page_.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    }

    void serve() {
        while (!stopping_) {
            Endpoint::News news;
            endpoint_->wait(Deadline::max(), news);
            for (const std::shared_ptr<Link>& link : news.links) answer(*link);
        }
    }

    void answer(Link& link) {
        Packet packet;
        const Reception reception = link.receive(packet);
        if (reception == Reception::End) return endpoint_->drop(link);
        if (reception == Reception::Nothing) return;
        if (decode_hello(packet.bytes)) {
            link.send(encode(Welcome{"host", name(), instance_, {}}));
        } else if (decode_attach(packet.bytes)) {
            link.send(encode(Accepted{instance_, 0, {}}), std::array{page_.get()});
        }
    }

    InstanceId instance_{};
    OwnedFd page_;
    SessionAddress address_{"127.0.0.1", 0};
    std::shared_ptr<Endpoint> endpoint_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

TEST(Dialling, registrations_that_could_be_cut_are_refused) {
    const auto engine = std::make_shared<TransferEngine>();
    ASSERT_EQ(engine->open("127.0.0.1:0", 20s, "host"), Status::Ok);
    const Pretender unsealed(false);
    EXPECT_EQ(engine->probe(unsealed.session()), Status::InvalidParam);
    EXPECT_TRUE(says("is no sealed memory file"));
    const Pretender sealed(true);
    EXPECT_EQ(engine->probe(sealed.session()), Status::NotConnected);
    EXPECT_TRUE(says("ended while we attached to it"));  // its page is one, but nobody holds the life word
}

}  // namespace
}  // namespace memfabric
