// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "endpoint/credentials.h"
#include "endpoint/endpoint.h"
#include "endpoint/link.h"
#include "python_module/arguments/seconds.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

Deadline deadline_after(double timeout_s) { return std::chrono::steady_clock::now() + nanoseconds_of(timeout_s); }

std::shared_ptr<Link> connect(const std::string& abstract_name) {
    std::shared_ptr<Link> link;
    raise_if_failed(Link::connect(abstract_name, link));
    return link;
}

Sending send(Link& self, const nb::bytes& content, const std::vector<int>& fds, double timeout_s) {
    if (fds.size() > kMostPacketFds) throw nb::value_error("more descriptors than one packet can take");
    const Bytes bytes(content.c_str(), content.size());
    Sending outcome = Sending::Failed;
    const Status status = without_gil([&] { return self.send(bytes, fds, deadline_after(timeout_s), outcome); });
    if (status == Status::Interrupted) throw nb::python_error();
    return outcome;
}

using Received = std::tuple<nb::bytes, std::vector<int>, bool>;

std::optional<Received> receive(Link& self) {
    Packet packet;
    const Reception reception = self.receive(packet);
    if (reception == Reception::Nothing) return std::nullopt;
    if (reception == Reception::End) packet = {};
    std::vector<int> fds;
    for (OwnedFd& fd : packet.fds) fds.push_back(fd.release());
    return Received{nb::bytes(packet.bytes.data(), packet.bytes.size()), std::move(fds), packet.fds_lost};
}

std::optional<std::pair<int, std::uint32_t>> peer(const Link& self) {
    ucred credentials{};
    if (!self.peer(credentials)) return std::nullopt;
    return std::pair(credentials.pid, credentials.uid);
}

std::shared_ptr<Endpoint> open(int listener) {
    std::vector<Endpoint::Listener> listeners;
    listeners.push_back({Link::Kind::Unix, OwnedFd(listener)});
    std::shared_ptr<Endpoint> endpoint;
    raise_if_failed(Endpoint::open(std::move(listeners), Endpoint::kEverybodyMayStay, endpoint));
    return endpoint;
}

std::pair<std::vector<std::shared_ptr<Link>>, bool> wait(Endpoint& self, std::optional<double> timeout_s) {
    Endpoint::News news;
    finish_without_gil([&] { self.wait(timeout_s ? deadline_after(*timeout_s) : Deadline::max(), news); });
    return {std::move(news.links), news.woken};
}

bool is_our_user(int pid, std::uint32_t uid) { return memfabric::is_our_user({pid, uid, 0}); }

}  // namespace

void bind_endpoint(nb::module_& module) {
    nb::enum_<Sending>(module, "Sending", "What became of a packet.")
        .value("SENT", Sending::Sent)
        .value("FULL", Sending::Full, "The other side does not read.")
        .value("CROWDED", Sending::Crowded, "Too many descriptors of this user are in flight.")
        .value("FAILED", Sending::Failed, "The link is over, or the packet too long.");

    nb::class_<Link>(module, "Link", "A connection to another process of this host. Any thread.")
        .def_static("connect", &connect, nb::arg("abstract_name"), "Raises FabricError when nobody answers there.")
        .def("send", &send, nb::arg("content"), nb::arg("fds"), nb::arg("timeout_s") = 0.0,
             "The descriptors stay the caller's. Waits while the other side does not read.")
        .def("receive", &receive,
             "(content, fds, fds_lost), or None if there is nothing. Without content: the link is over. The caller "
             "owns\n"
             "the descriptors; `fds_lost`: this process has no numbers left for them.")
        .def_prop_ro("peer", &peer, "(pid, uid) of the other side; None when the link is closed.")
        .def("hang_up", &Link::hang_up, "Both sides see an end.")
        .def("close", &Link::close);

    nb::class_<Endpoint>(module, "Endpoint", "A listening socket and the links of a process, watched together.")
        .def_static("open", &open, nb::arg("listener"),
                    "Owns the descriptor of the listening Unix socket from then on, also when it raises FabricError.")
        .def("wait", &wait, nb::arg("timeout_s"),
             "(links that have something to receive, whether `wake` was called); ([], False) after the time. One "
             "thread.")
        .def("add", &Endpoint::add, nb::arg("link"), "Watch a link that was connected; False if that is impossible.")
        .def("drop", &Endpoint::drop, nb::arg("link"), "Close a link.")
        .def("wake", &Endpoint::wake)
        .def("close", &Endpoint::close, "All links too; nobody may be waiting.");

    module.def("_is_our_user", &is_our_user, nb::arg("pid"), nb::arg("uid"),
               "Whether that process belongs to our user, or to root, also where user namespaces hide who it is.");
}

}  // namespace memfabric::python
