// SPDX-License-Identifier: Apache-2.0
//
// The engine's life, its registrations and its memory.
#include "transfer/engine.h"

#include <fcntl.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cinttypes>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "base/interruption.h"
#include "base/last_error.h"
#include "base/notice.h"
#include "base/pause_point.h"
#include "sync/rcu.h"
#include "tcp/served_memory.h"
#include "tcp/server.h"
#include "transfer/registrations/registered_memory.h"

namespace memfabric {
namespace {

// Yama's mode 1 lets a process be debugged by its ancestors only, and process_vm_* counts as debugging. The owner of
// the memory may lift that for itself; whether it should is the control plane's decision.
bool is_restricted_by_yama() {
    int scope = 0;
    std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
    return scope == 1;
}

// Other routes lead to what UCX cannot serve: whoever registers it is told, and so is who asks for it.
void serve(ucx::ServedRanges& ranges, std::span<const Extent> registered) {
    const std::string before = last_error();
    if (ranges.add(registered) == Status::Ok) return;
    notice("memory was registered that UCX cannot serve, so RDMA does not lead there: %s", last_error().c_str());
    set_last_error(before);
}

}  // namespace

TransferEngine::TransferEngine() { ExportedMemory::process().watch(this); }

TransferEngine::~TransferEngine() {
    ExportedMemory::process().unwatch(this);
    fork_guard_.in_forked_child() ? abandon_in_child() : close();
}

Status TransferEngine::check_process() const {
    if (!fork_guard_.in_forked_child()) return Status::Ok;
    return fail(Status::NotInit, "this transfer engine belongs to the parent of this forked process; make one here");
}

Status TransferEngine::port(std::uint16_t& port) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    const std::unique_lock lock = lock_when_closed();
    if (port_ == 0) {
        if (const Status status = reserve_port(port_holder_, port_); status != Status::Ok) return status;
    }
    port = port_;
    return Status::Ok;
}

std::string TransferEngine::session() const {
    if (fork_guard_.in_forked_child()) return "";
    const std::lock_guard lock(mutex_);
    return session_;
}

std::shared_ptr<PeerFailures> TransferEngine::failures() const {
    if (fork_guard_.in_forked_child()) {
        auto none = std::make_shared<PeerFailures>();
        none->close();
        return none;
    }
    const std::lock_guard lock(mutex_);
    return failures_;
}

std::shared_ptr<Notifications> TransferEngine::notifications() const {
    if (fork_guard_.in_forked_child()) {
        auto none = std::make_shared<Notifications>();
        none->close();
        return none;
    }
    const std::lock_guard lock(mutex_);
    return notifications_;
}

void TransferEngine::set_directory(Directory directory) {
    if (fork_guard_.in_forked_child()) return;
    const std::lock_guard lock(mutex_);
    directory_ = std::move(directory);
}

Status TransferEngine::open(const std::string& session, Milliseconds timeout, const std::string& host,
                            RoutesAllowed allowed, const DataPlace& data_place, const UcxUse& ucx,
                            std::shared_ptr<const tls::Identity> identity) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    SessionAddress address;
    if (const Status status = SessionAddress::parse(session, address); status != Status::Ok) return status;
    if (address.port == 0) {
        if (const Status status = port(address.port); status != Status::Ok) return status;
    }
    InstanceId instance;
    Secret secret;
    Secret data_secret;
    fill_random(instance);
    fill_random(secret);
    fill_random(data_secret);
    std::shared_ptr<RegistrationPage> page;
    if (const Status status = RegistrationPage::make(instance, page); status != Status::Ok) return status;
    auto served =
        std::make_unique<tcp::ServedMemory>(Connect{instance, data_secret}, std::make_shared<RegisteredMemory>(page));
    const std::unique_lock lock = lock_when_closed();
    if (open_.load()) return fail(Status::RepeatInvoke, "the engine is initialised already, as %s", session_.c_str());
    OwnedFd listener;
    if (const Status status = listen_at(address, listener); status != Status::Ok) return status;
    std::unique_ptr<tcp::Listener> data_listener;
    if (!data_place.host.empty()) {
        const Status status = tcp::Listener::open({data_place.host, data_place.first_port}, data_place.last_port,
                                                  identity, data_listener);
        if (status != Status::Ok) return status;
    }
    const auto offers = std::make_shared<SegmentOffers>();
    registrations_.show_on(page.get(), offers);
    const auto ucx_ranges = ucx.options ? std::make_shared<ucx::ServedRanges>(*ucx.options) : nullptr;
    if (ucx_ranges != nullptr) serve(*ucx_ranges, registrations_.list());
    const SessionOffer offer{.session = address.text(),
                             .host = host.substr(0, kLongestTextBytes),
                             .instance = instance,
                             .secret = secret,
                             .data_secret = data_secret,
                             .data_address = data_listener == nullptr ? SessionAddress{} : data_listener->address(),
                             .registrations_fd = page->shown_fd(),
                             .segments = offers,
                             .ucx = ucx.offer,
                             .ucx_ranges = ucx_ranges,
                             .identity = identity};
    std::unique_ptr<LivenessLease> lease;
    std::unique_ptr<SessionService> service;
    Status status = LivenessLease::start(page->life(), lease);
    if (status == Status::Ok) {
        status = SessionService::start(offer, std::move(listener), failures_, notifications_, service);
    }
    if (status != Status::Ok) {
        registrations_.show_on(nullptr, nullptr);
        return status;
    }
    if (is_restricted_by_yama()) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    timeout_ = timeout;
    session_ = offer.session;
    host_ = offer.host;
    allowed_ = allowed;
    instance_ = instance;
    port_ = address.port;
    port_holder_.reset();
    page_ = std::move(page);
    offers_ = offers;
    lease_ = std::move(lease);
    service_ = std::move(service);
    served_ = std::move(served);
    data_listener_ = std::move(data_listener);
    choose_network_route_ = ucx.choose;
    ucx_options_ = ucx.options.value_or(ucx::Options{});
    ucx_ranges_ = ucx_ranges;
    identity_ = std::move(identity);
    open_.store(true, std::memory_order_release);
    return Status::Ok;
}

// The lock, once nobody is half-way through closing.
std::unique_lock<std::mutex> TransferEngine::lock_when_closed() {
    std::unique_lock lock(mutex_);
    wait_until_closed(lock);
    return lock;
}

void TransferEngine::wait_until_closed(std::unique_lock<std::mutex>& lock) {
    if (closing_) PausePoint::reach("transfer.closes_elsewhere");
    closed_.wait(lock, [this] { return !closing_; });
}

// First nobody new gets in, then those inside leave, then everything goes. Who comes meanwhile to close it, too, gets
// what it wants by waiting.
void TransferEngine::close() {
    const DeferredInterruption deferred;
    if (fork_guard_.in_forked_child()) return;
    std::unique_lock lock(mutex_);
    if (closing_) return wait_until_closed(lock);
    closing_ = true;
    open_.store(false);
    const std::shared_ptr<SessionService> service = std::move(service_);
    const std::shared_ptr<Submissions> submissions = std::move(submissions_);
    lease_.reset();
    registrations_.clear();
    registrations_.show_on(nullptr, nullptr);
    std::unique_ptr<tcp::ServedMemory> served = std::move(served_);
    std::unique_ptr<tcp::Listener> data_listener = std::move(data_listener_);
    std::shared_ptr<ucx::ServedRanges> ucx_ranges = std::move(ucx_ranges_);
    lock.unlock();
    PausePoint::reach("transfer.close");
    if (service != nullptr) {
        pid_t late = 0;
        static_cast<void>(service->wait_for_initiators(deadline(), late));  // who is stopped inside is told by nobody
    }
    if (submissions != nullptr) submissions->close();
    if (service != nullptr) service->stop();  // before the descriptors that it gives away are closed
    data_listener.reset();
    served.reset();
    if (ucx_ranges != nullptr) ucx_ranges->remove([](const Extent&) { return true; });  // others may still have it
    wait_for_server();
    peers_.clear();
    lock.lock();
    std::unique_ptr<Arena> arena = std::move(arena_);
    page_.reset();
    offers_.reset();
    port_holder_.reset();
    port_ = 0;
    session_.clear();
    failures_->close();
    failures_ = std::make_shared<PeerFailures>();
    notifications_->close();
    notifications_ = std::make_shared<Notifications>();
    lock.unlock();
    arena.reset();  // without the lock: others may show its memory, too
    lock.lock();
    closing_ = false;
    closed_.notify_all();
}

// Only descriptors and mappings go: threads, locks and the words of the page are the parent's.
void TransferEngine::abandon_in_child() {
    open_.store(false);
    lease_.reset();
    service_.reset();
    served_.reset();
    data_listener_.reset();
    ucx_ranges_.reset();
    peers_.abandon_in_child();
    submissions_.reset();
    page_.reset();
    arena_.reset();
    port_holder_.reset();
}

Status TransferEngine::register_memory(std::span<const std::uint64_t> starts,
                                       std::span<const std::uint64_t> sizes_bytes) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (starts.size() != sizes_bytes.size()) {
        return fail(Status::InvalidParam, "%zu addresses and %zu sizes: both must be as many", starts.size(),
                    sizes_bytes.size());
    }
    const Status status = registrations_.add(starts, sizes_bytes);
    if (status == Status::Ok) serve_by_ucx(starts, sizes_bytes);
    return status;
}

std::shared_ptr<ucx::ServedRanges> TransferEngine::ucx_ranges() const {
    const std::lock_guard lock(mutex_);
    return ucx_ranges_;
}

// After it was registered: whoever opens the engine meanwhile may serve it as well.
void TransferEngine::serve_by_ucx(std::span<const std::uint64_t> starts, std::span<const std::uint64_t> sizes_bytes) {
    const std::shared_ptr<ucx::ServedRanges> ranges = ucx_ranges();
    if (ranges == nullptr) return;
    std::vector<Extent> added;
    for (std::size_t i = 0; i < starts.size(); ++i) added.push_back({starts[i], sizes_bytes[i]});
    PausePoint::reach("transfer.register.unserved");
    serve(*ranges, added);
    // Whoever has unregistered some of it meanwhile did so before it was served.
    if (std::ranges::all_of(starts, [&](std::uint64_t start) { return registrations_.has(start); })) return;
    ranges->remove([&](const Extent& range) { return !registrations_.has(range.address); });
}

bool TransferEngine::remove_inside(std::uint64_t start, std::uint64_t end) {
    const bool removed = registrations_.remove_inside(start, end);
    if (const std::shared_ptr<ucx::ServedRanges> ranges = ucx_ranges(); removed && ranges != nullptr) {
        ranges->remove(
            [&](const Extent& range) { return range.address < end && range.address + range.size_bytes > start; });
    }
    return removed;
}

Status TransferEngine::unregister_memory(std::span<const std::uint64_t> starts) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (const Status status = registrations_.remove(starts); status != Status::Ok) return status;
    if (const std::shared_ptr<ucx::ServedRanges> ranges = ucx_ranges(); ranges != nullptr) {
        const std::set<std::uint64_t> gone(starts.begin(), starts.end());
        ranges->remove([&](const Extent& range) { return gone.contains(range.address); });
    }
    const Status status = wait_for_initiators("memory was unregistered");
    if (status == Status::Ok) registrations_.settle(starts);
    return status;
}

std::size_t TransferEngine::registration_count() const {
    return fork_guard_.in_forked_child() ? 0 : registrations_.count();
}

// Peers of other hosts are inside our memory by our own threads only, each for one system call.
void TransferEngine::wait_for_server() {
    if (tcp::Server::process().connections() != 0) rcu::synchronize();
}

// The registration has ended already; what can fail is only to see its last users leave.
Status TransferEngine::wait_for_initiators(const char* what) {
    std::shared_ptr<SessionService> service;
    {
        const std::lock_guard lock(mutex_);
        service = service_;
    }
    wait_for_server();
    pid_t late = 0;
    if (service == nullptr || service->wait_for_initiators(deadline(), late)) return Status::Ok;
    if (Interruption::requested()) return Status::Interrupted;
    return fail(Status::Timeout,
                "%s, but process %d is still inside a transfer that began before; do not free it until that process "
                "goes on or ends: the same call again tells",
                what, static_cast<int>(late));
}

// Memory of this process, whoever's, is about to go: nobody may believe that it is still registered.
void TransferEngine::export_ends(const ExportedRange& range) {
    if (fork_guard_.in_forked_child()) return;
    if (remove_inside(range.start, range.end)) {
        const std::string before = last_error();
        // An initiator that is stopped inside keeps the file, not our addresses: its bytes go nowhere.
        if (wait_for_initiators("registered memory was given back") != Status::Ok) set_last_error(before);
    }
    std::shared_ptr<SegmentOffers> offers;
    {
        const std::lock_guard lock(mutex_);
        offers = offers_;
    }
    if (offers != nullptr) offers->withdraw(range.id);
}

void TransferEngine::set_memory_limit(MemoryLimit limit) {
    const std::lock_guard lock(mutex_);
    memory_limit_ = std::move(limit);
}

Status TransferEngine::allocate(std::uint64_t size_bytes, std::uint64_t& address) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    std::unique_lock lock = lock_when_closed();
    if (arena_ == nullptr) arena_ = std::make_unique<Arena>();
    if (const Status status = arena_->allocate(size_bytes, memory_limit_, address); status != Status::Ok) return status;
    const Status status = registrations_.add({&address, 1}, {&size_bytes, 1});
    if (status != Status::Ok) static_cast<void>(arena_->release(address));
    lock.unlock();
    if (status == Status::Ok) serve_by_ucx({&address, 1}, {&size_bytes, 1});
    return status;
}

Status TransferEngine::release(std::uint64_t address) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    std::uint64_t size_bytes = 0;
    {
        const std::lock_guard lock(mutex_);
        if (arena_ == nullptr || !arena_->size_of(address, size_bytes)) {
            return fail(Status::NotExist, "0x%" PRIx64 " is not the start of memory from trans_malloc", address);
        }
    }
    static_cast<void>(remove_inside(address, address + size_bytes));
    if (const Status status = wait_for_initiators("trans_free was called"); status != Status::Ok) return status;
    const std::lock_guard lock(mutex_);
    if (arena_ == nullptr) return Status::Ok;
    return arena_->release(address);
}

}  // namespace memfabric
