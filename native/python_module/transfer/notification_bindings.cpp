// SPDX-License-Identifier: Apache-2.0
//
// Notifications of a transfer engine: how the program's Python sends and takes them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/notifier.h"
#include "python_module/arguments/bytes_like.h"
#include "python_module/arguments/fast_method.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/session_name.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/failure_report.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"
#include "transfer/notifications.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

// Whoever takes keeps this object: a queue fetched for each call would one day be that of the engine's next life.
struct NotificationQueueObject {
    std::shared_ptr<Notifications> queue;
};

nb::tuple to_python(const Notification& notification) {
    return nb::make_tuple(session_text(notification.session),
                          nb::bytes(notification.data.data(), notification.data.size()));
}

nb::list take(const NotificationQueueObject& self, std::size_t most) {
    std::vector<Notification> taken;
    raise_if_failed(self.queue->take(most, taken));
    nb::list all;
    for (const Notification& notification : taken) all.append(to_python(notification));
    return all;
}

std::optional<nb::tuple> wait(const NotificationQueueObject& self) {
    Notification taken;
    bool is_one = false;
    {
        const ReleasedGil released;
        is_one = self.queue->wait(taken);
    }
    return is_one ? std::optional(to_python(taken)) : std::nullopt;
}

int notify(const TransferObject& self, const std::string& session, const BytesLike& data) {
    return code_of("TransferEngine.notify", without_gil([&] { return self.engine->notify(session, data.view()); }));
}

constexpr const char* kNotifyDoc =
    "Tell the program of the session `data` (bytes-like, at most 32768 bytes), in the order of the calls.\n\n"
    "The first contact with a session connects by itself. When it returns 0 the notification is in the peer's "
    "queue.\n\n"
    "Returns 0; -2000 if it is too long; -2002 if the peer's queue is full: nothing was queued, try again when it has\n"
    "taken some; -2004 if the peer does not answer in time (the notification may still arrive); -2014 if the peer is\n"
    "not there; -2008 before initialize(). The last error says more.";

}  // namespace

void bind_notifications(nb::module_& module, nb::class_<TransferObject>& transfer) {
    nb::class_<NotificationQueueObject>(module, "NotificationQueue",
                                        "What peers have told the program in one life of an engine.")
        .def("take", &take, nb::arg("most"),
             "The oldest ones, as (session, data). Raises FabricError while the callback takes them.")
        .def("wait", &wait,
             "The next one for the callback, as (session, data); None when the engine closed and nothing is left.")
        .def(
            "give_to_callback",
            [](const NotificationQueueObject& self, bool given) { self.queue->give_to_callback(given); },
            nb::arg("given"), "From now on wait() takes them, or else take().")
        .def(
            "listen",
            [](const NotificationQueueObject& self, std::shared_ptr<Notifier> notifier, std::uint64_t token) {
                self.queue->listen(std::move(notifier), token);
            },
            nb::arg("notifier"), nb::arg("token"), "Notify once, when there may be something to take, or the end.")
        .def(
            "wake", [](const NotificationQueueObject& self) { self.queue->wake(); }, "Notify all who listen.")
        .def_prop_ro(
            "closed", [](const NotificationQueueObject& self) { return self.queue->closed(); },
            "Whether nothing comes any more.");
    transfer.def(
        "_notification_queue",
        [](const TransferObject& self) { return NotificationQueueObject{self.engine->notifications()}; },
        "The notifications of this life of the engine.");
    def_fast<&notify, 2>(transfer, {"notify", {"dest_session", "data"}, 2, kNotifyDoc});
}

}  // namespace memfabric::python
