// SPDX-License-Identifier: Apache-2.0
//
// The transfers, as TransferEngine inherits them. The single ones go around nanobind, as copy_data does: the bar is
// 0.2 us above one system call.
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/last_error.h"
#include "python_module/arguments/bytes_like.h"
#include "python_module/arguments/fast_arguments.h"
#include "python_module/arguments/fast_method.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/number_list.h"
#include "python_module/arguments/session_name.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/failure_report.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

// Giving the GIL away and taking it back costs more than moving this much.
constexpr std::uint64_t kKeepGilBytes = 16 * 1024;

// The rare case of transfer_sync_write: somebody is told.
[[gnu::cold, gnu::noinline]] PyObject* write_and_notify(TransferEngine& engine, const Signature<6>& signature,
                                                        PyObject* notify, std::string_view session,
                                                        const TransferArrays& arrays) {
    BytesLike data;
    std::string why;
    if (!data.load(notify, why)) {
        complain(signature, 5, why);
        return nullptr;
    }
    const Status status = without_gil([&] { return engine.write_batch_and_notify(session, arrays, data.view()); });
    return code_object("TransferEngine.transfer_sync_write", status);
}

template <Direction direction>
PyObject* transfer_sync(PyObject* self, PyObject* const* arguments, Py_ssize_t positional_count,
                        PyObject* keyword_names) {
    constexpr bool kWrite = direction == Direction::Write;
    constexpr const char* kName = kWrite ? "transfer_sync_write" : "transfer_sync_read";
    constexpr const char* kCall = kWrite ? "TransferEngine.transfer_sync_write" : "TransferEngine.transfer_sync_read";
    static const auto signature = [] {
        if constexpr (kWrite) {
            return Signature<6>(kName, {"dest_session", "buffer", "peer_buffer", "length", "flags", "notify"}, 4);
        } else {
            return Signature<5>(kName, {"dest_session", "buffer", "peer_buffer", "length", "flags"}, 4);
        }
    }();
    std::array<PyObject*, kWrite ? 6 : 5> slots{};
    if (!sort_arguments(signature, arguments, positional_count, keyword_names, slots)) return nullptr;
    std::string_view session;
    std::uint64_t buffer = 0;
    std::uint64_t peer_buffer = 0;
    std::uint64_t length = 0;
    std::uint64_t flags = 0;
    if (!to_text(slots[0], session) || !to_number(slots[1], buffer) || !to_number(slots[2], peer_buffer) ||
        !to_number(slots[3], length) || (slots[4] != nullptr && !to_number(slots[4], flags))) [[unlikely]] {
        if (!to_text(slots[0], session)) {
            complain(signature, 0, std::string("must be a str, not ") + Py_TYPE(slots[0])->tp_name);
        } else {
            complain_about_first(signature, slots, /*first=*/1);
        }
        return nullptr;
    }
    if (!nb::inst_ready(self)) [[unlikely]] {
        PyErr_Format(PyExc_TypeError, "%s(): __init__ of the base class was not called", kName);
        return nullptr;
    }
    TransferEngine& engine = *nb::inst_ptr<TransferObject>(self)->engine;
    if constexpr (kWrite) {
        if (slots[5] != nullptr && slots[5] != Py_None) [[unlikely]] {
            return write_and_notify(engine, signature, slots[5], session,
                                    {{&buffer, 1}, {&peer_buffer, 1}, {&length, 1}});
        }
    }
    if (length <= kKeepGilBytes) [[likely]] {
        if (const auto status = engine.transfer_if_attached(direction, session, buffer, peer_buffer, length)) {
            return code_object(kCall, *status);
        }
    }
    const Status status = without_gil([&] { return engine.transfer(direction, session, buffer, peer_buffer, length); });
    return code_object(kCall, status);
}

void raising_write(const TransferObject& self, const std::string& session, U64 buffer, U64 peer_buffer, U64 length,
                   const OptionalBytes& notify) {
    const TransferArrays arrays{{&buffer.value, 1}, {&peer_buffer.value, 1}, {&length.value, 1}};
    raise_if_failed(without_gil([&] {
        return notify.given() ? self.engine->write_batch_and_notify(session, arrays, notify.view())
                              : self.engine->transfer(Direction::Write, session, buffer, peer_buffer, length);
    }));
}

void raising_read(const TransferObject& self, const std::string& session, U64 buffer, U64 peer_buffer, U64 length) {
    raise_if_failed(
        without_gil([&] { return self.engine->transfer(Direction::Read, session, buffer, peer_buffer, length); }));
}

int batch_read(const TransferObject& self, const std::string& session, const NumberList& buffers,
               const NumberList& peer_buffers, const NumberList& lengths, U64 /*flags*/) {
    const TransferArrays arrays{buffers.numbers(), peer_buffers.numbers(), lengths.numbers()};
    return code_of("TransferEngine.batch_transfer_sync_read",
                   without_gil([&] { return self.engine->transfer_batch(Direction::Read, session, arrays); }));
}

int batch_write(const TransferObject& self, const std::string& session, const NumberList& buffers,
                const NumberList& peer_buffers, const NumberList& lengths, U64 /*flags*/, const OptionalBytes& notify) {
    const TransferArrays arrays{buffers.numbers(), peer_buffers.numbers(), lengths.numbers()};
    return code_of("TransferEngine.batch_transfer_sync_write", without_gil([&] {
                       return notify.given() ? self.engine->write_batch_and_notify(session, arrays, notify.view())
                                             : self.engine->transfer_batch(Direction::Write, session, arrays);
                   }));
}

int submit_read(const TransferObject& self, const std::string& session, U64 buffer, U64 peer_buffer, U64 length,
                U64 stream, U64 /*flags*/) {
    const TransferArrays arrays{{&buffer.value, 1}, {&peer_buffer.value, 1}, {&length.value, 1}};
    return code_of("TransferEngine.transfer_async_read_submit",
                   without_gil([&] { return self.engine->submit(Direction::Read, session, arrays, stream); }));
}

int submit_write(const TransferObject& self, const std::string& session, U64 buffer, U64 peer_buffer, U64 length,
                 U64 stream, U64 /*flags*/, const OptionalBytes& notify) {
    const TransferArrays arrays{{&buffer.value, 1}, {&peer_buffer.value, 1}, {&length.value, 1}};
    return code_of("TransferEngine.transfer_async_write_submit", without_gil([&] {
                       return self.engine->submit(Direction::Write, session, arrays, stream, notify.bytes());
                   }));
}

int batch_submit_read(const TransferObject& self, const std::string& session, const NumberList& buffers,
                      const NumberList& peer_buffers, const NumberList& lengths, U64 stream, U64 /*flags*/) {
    const TransferArrays arrays{buffers.numbers(), peer_buffers.numbers(), lengths.numbers()};
    return code_of("TransferEngine.batch_transfer_async_read_submit",
                   without_gil([&] { return self.engine->submit(Direction::Read, session, arrays, stream); }));
}

int batch_submit_write(const TransferObject& self, const std::string& session, const NumberList& buffers,
                       const NumberList& peer_buffers, const NumberList& lengths, U64 stream, U64 /*flags*/,
                       const OptionalBytes& notify) {
    const TransferArrays arrays{buffers.numbers(), peer_buffers.numbers(), lengths.numbers()};
    return code_of("TransferEngine.batch_transfer_async_write_submit", without_gil([&] {
                       return self.engine->submit(Direction::Write, session, arrays, stream, notify.bytes());
                   }));
}

int batch_quantised(const TransferObject& self, const std::string& session, const NumberList& buffers,
                    const NumberList& peer_buffers, const NumberList& lengths, const NumberList& scales,
                    const NumberList& offsets, U32 unit_num, U32 input_type, U64 stream, U64 /*flags*/,
                    const OptionalBytes& notify) {
    if (notify.given()) {
        const Status status = TransferEngine::check_notification(notify.view());
        if (status != Status::Ok) return code_of("TransferEngine.batch_transfer_write_with_quant", status);
    }
    QuantisedBatch batch{owned(buffers),
                         owned(peer_buffers),
                         owned(lengths),
                         owned(scales),
                         owned(offsets),
                         unit_num,
                         static_cast<HalfType>(input_type.value),
                         owned(notify)};
    return code_of("TransferEngine.batch_transfer_write_with_quant",
                   without_gil([&] { return self.engine->write_quantised(session, std::move(batch), stream); }));
}

int send_probe(const TransferObject& self, const std::string& session) {
    return code_of("TransferEngine.send_probe", without_gil([&] { return self.engine->probe(session); }));
}

#define MF_TRANSFER_CODES                                                                                            \
    "Returns 0 when the bytes are in place; -2000 if the peer's range is not all registered there now (nothing is\n" \
    "moved), for a length of 0 or a bad buffer; -2014 if the peer cannot be reached or has died; -2004 if it does "  \
    "not\n"                                                                                                          \
    "answer; -2012 if it died when a part was moved; -2008 before initialize(). The last error says more."

#define MF_NOTIFY                                                                                                   \
    "`notify`: bytes-like, which the peer's program gets (see notify()) when all bytes are there; nothing if they " \
    "are\n"                                                                                                         \
    "not.\n\n"

constexpr const char* kWriteDoc =
    "transfer_sync_write($self, dest_session, buffer, peer_buffer, length, flags=0, notify=None)\n--\n\n"
    "Write `length` bytes at address `buffer` of this process to address `peer_buffer` of the session's process.\n\n"
    "The first contact with a session connects by itself. `flags` is reserved.\n\n" MF_NOTIFY MF_TRANSFER_CODES;
constexpr const char* kReadDoc =
    "transfer_sync_read($self, dest_session, buffer, peer_buffer, length, flags=0)\n--\n\n"
    "Read `length` bytes at address `peer_buffer` of the session's process into address `buffer` of this one.\n\n"
    "The first contact with a session connects by itself. `flags` is reserved.\n\n" MF_TRANSFER_CODES;
#define MF_BATCH                                                                                                     \
    "Many independent pieces in one call: lists, tuples or one-dimensional integer buffers (numpy arrays) of 1 to\n" \
    "1048576 items, all of one length. Everything is checked before the first byte moves.\n\n"
constexpr const char* kBatchDoc = MF_BATCH MF_TRANSFER_CODES;
constexpr const char* kBatchWriteDoc = MF_BATCH MF_NOTIFY MF_TRANSFER_CODES;
constexpr const char* kSubmitDoc =
    "The same on a stream (an mf.Stream or its handle), in order with its other work; stream.wait() has the result.\n\n"
    "Returns 0 when it is submitted; -2000 for stream 0 or an unknown one; -2008 before initialize().";
constexpr const char* kSubmitWriteDoc =
    "The same on a stream (an mf.Stream or its handle), in order with its other work; stream.wait() has the "
    "result.\n\n" MF_NOTIFY
    "Returns 0 when it is submitted; -2000 for stream 0 or an unknown one; -2008 before initialize().";
constexpr const char* kQuantDoc =
    "Write bf16 (input_type 0) or fp16 (1) numbers as int8: q = saturate(round(x * scale + offset)).\n\n"
    "lengths[i] bytes at buffers[i] are `unit_num` units of equal size; scale_buffers[i] and offset_buffers[i] are "
    "the\n"
    "addresses of one float32 per unit (offset address 0, or an empty list: no offset). lengths[i] / 2 bytes arrive "
    "at\n"
    "peer_buffers[i]. Computed in float32, rounded half to even, saturated to -128..127, NaN becomes 0. With a stream "
    "it\n"
    "runs there.\n\n" MF_TRANSFER_CODES;
constexpr const char* kProbeDoc =
    "Whether the session's engine is there, connecting if necessary. Returns 0 = alive, or what a transfer would.";

void bind_batches(nb::class_<TransferObject>& transfer) {
    def_fast<&batch_write, 6>(transfer, {"batch_transfer_sync_write",
                                         {"dest_session", "buffers", "peer_buffers", "lengths", "flags", "notify"},
                                         4,
                                         kBatchWriteDoc});
    def_fast<&batch_read, 5>(
        transfer,
        {"batch_transfer_sync_read", {"dest_session", "buffers", "peer_buffers", "lengths", "flags"}, 4, kBatchDoc});
    def_fast<&batch_quantised, 11>(transfer, {"batch_transfer_write_with_quant",
                                              {"dest_session", "buffers", "peer_buffers", "lengths", "scale_buffers",
                                               "offset_buffers", "unit_num", "input_type", "stream", "flags", "notify"},
                                              7,
                                              kQuantDoc});
    def_fast<&send_probe, 1>(transfer, {"send_probe", {"dest_session"}, 1, kProbeDoc});
}

void bind_submissions(nb::class_<TransferObject>& transfer) {
    def_fast<&submit_write, 7>(transfer,
                               {"transfer_async_write_submit",
                                {"dest_session", "buffer", "peer_buffer", "length", "stream", "flags", "notify"},
                                5,
                                kSubmitWriteDoc});
    def_fast<&submit_read, 6>(transfer, {"transfer_async_read_submit",
                                         {"dest_session", "buffer", "peer_buffer", "length", "stream", "flags"},
                                         5,
                                         kSubmitDoc});
    def_fast<&raising_write, 5>(transfer, {"_write",
                                           {"dest_session", "source", "address", "length", "notify"},
                                           4,
                                           "transfer_sync_write(), raising.",
                                           "write"});
    def_fast<&raising_read, 4>(
        transfer,
        {"_read", {"dest_session", "target", "address", "length"}, 4, "transfer_sync_read(), raising.", "read"});
    def_fast<&batch_submit_write, 7>(
        transfer, {"batch_transfer_async_write_submit",
                   {"dest_session", "buffers", "peer_buffers", "lengths", "stream", "flags", "notify"},
                   5,
                   kSubmitWriteDoc});
    def_fast<&batch_submit_read, 6>(transfer,
                                    {"batch_transfer_async_read_submit",
                                     {"dest_session", "buffers", "peer_buffers", "lengths", "stream", "flags"},
                                     5,
                                     kSubmitDoc});
}

}  // namespace

void bind_transfer_moves(nb::module_& module, nb::class_<TransferObject>& transfer) {
    // CPython keeps the pointers to these tables.
    static PyMethodDef write_method{
        "transfer_sync_write", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&transfer_sync<Direction::Write>)),
        METH_FASTCALL | METH_KEYWORDS, kWriteDoc};
    static PyMethodDef read_method{
        "transfer_sync_read", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&transfer_sync<Direction::Read>)),
        METH_FASTCALL | METH_KEYWORDS, kReadDoc};
    auto* type = reinterpret_cast<PyTypeObject*>(transfer.ptr());
    transfer.attr("transfer_sync_write") = nb::steal(PyDescr_NewMethod(type, &write_method));
    transfer.attr("transfer_sync_read") = nb::steal(PyDescr_NewMethod(type, &read_method));

    bind_batches(transfer);
    bind_submissions(transfer);
    bind_tickets(module, transfer);
}

}  // namespace memfabric::python
