// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "python_module/bindings.h"
#include "python_module/gil.h"
#include "python_module/number.h"
#include "store/frame_exchange.h"
#include "store/gather_frame.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

using store::FrameExchange;

constexpr std::size_t kLongestAnswerBytes = std::size_t{1} << 30;

// Py_None: all arrived, without data. A list: their data. Bytes: another answer, for the Python messages to decode.
PyObject* converted(std::string_view payload, std::uint32_t size) {
    std::vector<std::string_view> parts;
    switch (store::read_gather_answer(payload, size, parts)) {
        case store::GatherAnswer::kArrived:
            Py_RETURN_NONE;
        case store::GatherAnswer::kOther:
            return PyBytes_FromStringAndSize(payload.data(), static_cast<Py_ssize_t>(payload.size()));
        case store::GatherAnswer::kGathered:
            break;
    }
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(parts.size()));
    if (list == nullptr) return nullptr;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        PyObject* part = PyBytes_FromStringAndSize(parts[i].data(), static_cast<Py_ssize_t>(parts[i].size()));
        if (part == nullptr) {
            Py_DECREF(list);
            return nullptr;
        }
        PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), part);
    }
    return list;
}

// False: not what the short path takes. Never fails with a Python error.
bool read_arguments(PyObject* const* arguments, Py_ssize_t count, int& fd, store::Gather& gather, double& grace_s) {
    if (count != 9 || !PyUnicode_Check(arguments[2]) || !PyUnicode_IS_COMPACT_ASCII(arguments[2]) ||
        !PyBytes_Check(arguments[6]) || !PyFloat_Check(arguments[7]) || !PyFloat_Check(arguments[8])) {
        return false;
    }
    std::uint32_t number = 0;
    gather.group = {reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(arguments[2])),
                    static_cast<std::size_t>(PyUnicode_GET_LENGTH(arguments[2]))};
    gather.data = {PyBytes_AS_STRING(arguments[6]), static_cast<std::size_t>(PyBytes_GET_SIZE(arguments[6]))};
    grace_s = PyFloat_AS_DOUBLE(arguments[8]);
    if (!to_number(arguments[0], number) || !to_number(arguments[1], gather.call) ||
        !to_number(arguments[3], gather.round) || !to_number(arguments[4], gather.rank) ||
        !to_number(arguments[5], gather.size)) {
        return false;
    }
    fd = static_cast<int>(number);
    gather.timeout_s = PyFloat_AS_DOUBLE(arguments[7]) - store::now_s();
    return store::is_plain(gather);
}

// A signal's handler may raise; an exception of C++ (no memory) becomes one of Python.
PyObject* gather(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    int fd = -1;
    double grace_s = 0;
    store::Gather request{};
    if (!read_arguments(arguments, count, fd, request, grace_s)) Py_RETURN_FALSE;
    try {
        const std::string frame = store::gather_frame(request);
        FrameExchange exchange(fd, frame, PyFloat_AS_DOUBLE(arguments[7]) + grace_s, kLongestAnswerBytes);
        while (true) {
            FrameExchange::End end;
            {
                const ReleasedGil released;
                end = exchange.run();
            }
            switch (end) {
                case FrameExchange::End::kAnswered:
                    return converted(exchange.answer(), request.size);
                case FrameExchange::End::kLate:
                    PyErr_SetString(PyExc_TimeoutError, "no answer in time");
                    return nullptr;
                case FrameExchange::End::kLost:
                    PyErr_SetString(PyExc_ConnectionError, exchange.reason().c_str());
                    return nullptr;
                case FrameExchange::End::kInterrupted:
                    if (PyErr_CheckSignals() != 0) return nullptr;
            }
        }
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

constexpr const char* kGatherDoc =
    "_gather(fd, call, group, round, rank, size, data, until, grace_s, /)\n\n"
    "A collective of the store on a blocking socket that nobody else uses meanwhile. The store is told to wait for "
    "the\n"
    "others until `until` (on the monotonic clock), and its answer is awaited `grace_s` longer.\n\n"
    "None: all arrived and nobody brought data. A list: their data. Bytes: any other answer, to be decoded.\n"
    "False: nothing was sent, because the values are not those of nearly every call.\n"
    "TimeoutError when no answer came, ConnectionError when the store is lost.";

}  // namespace

void bind_gather(nb::module_& module) {
    // Called by CPython directly: nanobind's dispatch would be one more piece of cold code. CPython keeps the pointer.
    static PyMethodDef method{"_gather", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(gather)), METH_FASTCALL,
                              kGatherDoc};
    module.attr("_gather") = nb::steal(PyCFunction_NewEx(&method, nullptr, nullptr));
}

}  // namespace memfabric::python
