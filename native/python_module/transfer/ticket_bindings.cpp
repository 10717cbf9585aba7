// SPDX-License-Identifier: Apache-2.0
//
// Transfers that run beside the program.
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <string>
#include <utility>

#include "base/last_error.h"
#include "base/notifier.h"
#include "python_module/arguments/bytes_like.h"
#include "python_module/arguments/fast_method.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/number_list.h"
#include "python_module/arguments/seconds.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/failure_report.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"
#include "transfer/ticket.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

// Raises FabricError for what can be known now; what fails later is the ticket's. `run(engine, session, arrays)` does
// the work later.
template <typename Run>
TicketObject submit_ticket(const TransferObject& self, const std::string& session, const NumberList& buffers,
                           const NumberList& peer_buffers, const NumberList& lengths, Run run) {
    const auto ticket = std::make_shared<Ticket>();
    TransferEngine* engine = self.engine.get();  // outlives what is submitted to it
    const auto work = [engine, session, buffers = owned(buffers), peer_buffers = owned(peer_buffers),
                       lengths = owned(lengths),
                       run = std::move(run)] { return run(*engine, session, {buffers, peer_buffers, lengths}); };
    raise_if_failed(engine->submit_own(session, [ticket, work] { ticket->run(work); }));
    return {ticket};
}

TicketObject read_ticket(const TransferObject& self, const std::string& session, const NumberList& buffers,
                         const NumberList& peer_buffers, const NumberList& lengths) {
    return submit_ticket(self, session, buffers, peer_buffers, lengths,
                         [](TransferEngine& engine, const std::string& peer, const TransferArrays& arrays) {
                             return engine.transfer_batch(Direction::Read, peer, arrays);
                         });
}

TicketObject write_ticket(const TransferObject& self, const std::string& session, const NumberList& buffers,
                          const NumberList& peer_buffers, const NumberList& lengths, const OptionalBytes& notify) {
    if (notify.given()) raise_if_failed(TransferEngine::check_notification(notify.view()));
    return submit_ticket(
        self, session, buffers, peer_buffers, lengths,
        [data = owned(notify)](TransferEngine& engine, const std::string& peer, const TransferArrays& arrays) {
            return data ? engine.write_batch_and_notify(peer, arrays, *data)
                        : engine.transfer_batch(Direction::Write, peer, arrays);
        });
}

void raising_wait(const TicketObject& self, Timeout timeout) {
    const Completion::Timeout limit = timeout.limit();
    raise_if_failed(without_gil([&] { return self.ticket->wait(limit); }));
}

int wait(const TicketObject& self, Timeout timeout) {
    const Completion::Timeout limit = timeout.limit();
    const Status status = without_gil([&] { return self.ticket->wait(limit); });
    const bool is_not_yet = status == Status::Timeout && !self.ticket->done();
    if (!is_not_yet) return code_of("Ticket.wait", status);
    report_last_error();  // and nothing for the log: nothing has failed
    return static_cast<int>(status);
}

void notify(const TicketObject& self, const std::shared_ptr<Notifier>& notifier, U64 token) {
    raise_if_failed(self.ticket->listen([notifier, number = token.value] { notifier->notify(number); }));
}

}  // namespace

void bind_tickets(nb::module_& module, nb::class_<TransferObject>& transfer) {
    constexpr const char* kWaitDoc =
        "Wait for the end. Returns the transfer's code; -2004 after `timeout` seconds; -2003 if it was cancelled.";
    constexpr const char* kTicketDoc = "A ticket for a transfer that runs beside the program.";
    def_fast<&write_ticket, 5>(transfer, {"_submit_write",
                                          {"dest_session", "buffers", "peer_buffers", "lengths", "notify"},
                                          4,
                                          kTicketDoc,
                                          "submit_write"});
    def_fast<&read_ticket, 4>(
        transfer,
        {"_submit_read", {"dest_session", "buffers", "peer_buffers", "lengths"}, 4, kTicketDoc, "submit_read"});

    nb::class_<TicketObject> ticket(module, "TransferTicket", "A transfer that runs beside the program.");
    def_fast<&wait, 1>(ticket, {"wait", {"timeout"}, 0, kWaitDoc});
    def_fast<&raising_wait, 1>(ticket, {"_result", {"timeout"}, 0, "wait(), raising.", "result"});
    ticket
        .def_prop_ro(
            "done", [](const TicketObject& self) { return self.ticket->done(); },
            "Whether the transfer has ended or was cancelled.")
        .def(
            "cancel", [](const TicketObject& self) { return self.ticket->cancel(); },
            "Take the transfer back. True if it will never begin; False if it runs or has ended.")
        .def(
            "_cut", [](const TicketObject& self) { self.ticket->cut(); },
            "cancel(), and if it runs it ends at its next chunk. Does not wait.")
        .def("_notify", &notify, nb::arg("notifier"), nb::arg("token"),
             "Notify when it has ended. Raises FabricError.");
}

}  // namespace memfabric::python
