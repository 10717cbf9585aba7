// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "base/last_error.h"
#include "base/notifier.h"
#include "python_module/arguments/fast_method.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/seconds.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/failure_report.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"
#include "space/stream.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

std::uint64_t handle(const StreamObject& self) { return self.stream->handle(); }

int wait(const StreamObject& self, Timeout timeout, Timeout timeout_s) {
    const Stream::Timeout other_name = timeout_s.limit();
    const Stream::Timeout limit = other_name ? other_name : timeout.limit();
    const Status status = without_gil([&] { return self.stream->wait(limit); });
    if (!limit || status != Status::Timeout) return code_of("Stream.wait", status);
    report_last_error();  // and nothing for the log: nothing has failed
    return static_cast<int>(status);
}

int notify_fd(const StreamObject& self, OptionalNumber sequence) {
    int fd = -1;
    const Status status = self.stream->notify_fd(sequence.number.value_or(self.stream->submitted()), fd);
    if (status != Status::Ok) report_and_raise("Stream.notify_fd", status);
    return fd;
}

void notify(const StreamObject& self, const std::shared_ptr<Notifier>& notifier, U64 token, U64 sequence) {
    raise_if_failed(self.stream->listen(sequence, [notifier, number = token.value] { notifier->notify(number); }));
}

std::pair<int, std::string> first_failure(const StreamObject& self) {
    Failure failure = self.stream->first_failure();
    return {static_cast<int>(failure.status), std::move(failure.sentence)};
}

void close(const StreamObject& self) {
    const Status status = without_gil([&] { return self.stream->close(); });
    if (status != Status::Ok) report_and_raise("Stream.close", status);
}

constexpr const char* kWaitDoc =
    "Wait for everything submitted so far. Returns 0, or the code of the first copy that failed since the last wait\n"
    "(and sets the last error), or -2004 after `timeout` seconds, or -2008 in a forked child. `timeout_s` is another\n"
    "name of `timeout`.";
constexpr const char* kNotifyFdDoc =
    "A new eventfd that becomes readable when the copies up to `sequence` (default: all submitted) have ended. The\n"
    "caller closes it. Raises FabricError.";

}  // namespace

void bind_stream(nb::module_& module) {
    nb::class_<StreamObject> stream(module, "Stream",
                                    "An ordered queue of copies with a thread of its own. Pass it (or its `handle`) as "
                                    "`stream` with flag 4; copies\n"
                                    "run one after the other, a failed one does not stop the next.");
    stream.def(nb::init<>())
        .def_prop_ro("handle", &handle, "The number by which copy calls know this stream; never 0.")
        .def("__int__", &handle, "The handle.")
        .def("__index__", &handle, "The handle: a Stream can be passed wherever one is expected.")
        .def_prop_ro(
            "submitted", [](const StreamObject& self) { return self.stream->submitted(); },
            "How many copies were submitted; the sequence number of the last one.")
        .def_prop_ro(
            "completed", [](const StreamObject& self) { return self.stream->completed(); },
            "How many copies have ended, failed ones included.")
        .def("first_failure", &first_failure,
             "(code, sentence) of the first failure since the last wait; (0, \"\") if there was none. Does not forget "
             "it.")
        .def("_notify", &notify, nb::arg("notifier"), nb::arg("token"), nb::arg("sequence"),
             "Notify when the copies up to `sequence` have ended. Raises FabricError.")
        .def(
            "_cancel", [](const StreamObject& self, U64 sequence) { self.stream->cancel(sequence); },
            nb::arg("sequence"),
            "Call the copies up to `sequence` off: what has not begun never does, what runs ends at its next chunk. "
            "Does not\nwait.")
        .def("close", &close, "Take no new copies, finish what was submitted, end the thread. Idempotent.");
    def_fast<&wait, 2>(stream, {"wait", {"timeout", "timeout_s"}, 0, kWaitDoc});
    def_fast<&notify_fd, 1>(stream, {"notify_fd", {"sequence"}, 0, kNotifyFdDoc});
}

}  // namespace memfabric::python
