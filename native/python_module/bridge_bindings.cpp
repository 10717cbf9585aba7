// SPDX-License-Identifier: Apache-2.0
//
// Calls of the C library, carried out by Python functions.
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "base/last_error.h"
#include "bridge/call.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/callback.h"
#include "python_module/interpreter/gil.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

using bridge::Argument;
using bridge::Call;

PyObject* functions = nullptr;  // a dict, kept for ever: the C library may call at any time

// C has bytes where Python has text; what is no UTF-8 reaches Python as it is in file names.
nb::object text(std::string_view given) {
    return nb::steal(PyUnicode_DecodeUTF8(given.data(), static_cast<Py_ssize_t>(given.size()), "surrogateescape"));
}

struct ToPython {
    nb::object operator()(std::monostate) const { return nb::none(); }
    nb::object operator()(std::uint64_t number) const { return nb::int_(number); }
    nb::object operator()(std::int64_t number) const { return nb::int_(number); }
    nb::object operator()(std::string_view given) const { return text(given); }
    nb::object operator()(const bridge::Bytes& bytes) const {
        return nb::bytes(reinterpret_cast<const char*>(bytes.data.data()), bytes.data.size());
    }
    nb::object operator()(const bridge::Texts& texts) const {
        nb::list list;
        for (const std::string_view each : texts) list.append(text(each));
        return nb::tuple(list);
    }
};

// Returns false for an object that no call may answer with.
bool take_object(nb::handle object, Call& call) {
    SpaceObject* space = nullptr;
    TransferObject* transfer = nullptr;
    if (nb::try_cast(object, space)) {
        call.made = space->space;
    } else if (nb::try_cast(object, transfer)) {
        call.made = transfer->engine;
    } else if (const auto heap = heap_of(object); heap != nullptr) {
        call.made = heap;
    } else {
        return false;
    }
    return true;
}

// The answer is a code, or a tuple of a code and numbers, bytes or what was made.
void take_answer(const nb::object& answer, Call& call) {
    nb::object code = answer;
    if (nb::isinstance<nb::tuple>(answer)) {
        bool is_code = true;
        for (const nb::handle each : answer) {
            if (is_code) {
                code = nb::borrow(each);
            } else if (nb::isinstance<nb::bytes>(each)) {
                const nb::bytes bytes = nb::borrow<nb::bytes>(each);
                call.bytes.assign(bytes.c_str(), bytes.size());
            } else if (nb::isinstance<nb::int_>(each)) {
                call.numbers.push_back(static_cast<std::int64_t>(PyLong_AsUnsignedLongLongMask(each.ptr())));
            } else if (!take_object(each, call)) {
                call.status = fail(Status::Error, "%s answered with something that C cannot use; please report it",
                                   call.function);
                return;
            }
            is_code = false;
        }
    }
    call.status = static_cast<Status>(nb::cast<int>(nb::int_(code)));
}

// Instead of `carry_out` when the interpreter has ended; another one that may be started has none of these functions.
void refuse(Call& call) {
    call.status = fail(Status::NotInit, "%s: the interpreter of this process has ended, and with it all that it ran",
                       call.function);
}

void carry_out(Call& call) {
    if (call.status = check_interpreter(); call.status != Status::Ok) return;
    call.status = Status::Error;
    const AcquiredGil acquired;
    try {
        const nb::object function = nb::borrow(PyDict_GetItemString(functions, call.function));
        if (!function.is_valid()) {
            call.status = fail(Status::Error,
                               "the control plane does not know %s: libmf_smem.so and the Python package "
                               "memfabric_hybrid are of different versions",
                               call.function);
            return;
        }
        nb::list arguments;
        for (const Argument& each : call.arguments) arguments.append(std::visit(ToPython{}, each));
        PyObject* const answer = call_from_core(function.ptr(), nb::tuple(arguments).ptr());
        if (answer == nullptr) {  // it answers with a code for every failure of ours
            nb::python_error raised;
            call.status = hand_to_program(raised, call.function);
            return;
        }
        take_answer(nb::steal(answer), call);
    } catch (nb::python_error& error) {
        call.status = failure_of(error);
    } catch (const std::exception& error) {
        call.status = fail(Status::Error, "%s: %s", call.function, error.what());
    }
}

}  // namespace

void bind_bridge(nb::module_& module) {
    module.def(
        "_serve_c_calls",
        [](const nb::dict& by_name) {
            PyObject* const before = functions;
            functions = by_name.inc_ref().ptr();
            Py_XDECREF(before);
            if (before == nullptr) Py_AtExit([] { bridge::serve(&refuse); });
            bridge::serve(&carry_out);
        },
        nb::arg("functions"),
        "Calls of the C library run these functions, by name, on whatever thread calls. Each answers with a code, or "
        "with\n"
        "a tuple of a code and numbers, bytes, or the object it made.");
}

}  // namespace memfabric::python
