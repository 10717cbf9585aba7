// SPDX-License-Identifier: Apache-2.0
//
// A session's name: as an argument, text that is used where it is, without a copy; and as a result.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace memfabric::python {

// False, without a Python error set, if the object is no text. Valid as long as the object.
inline bool to_text(PyObject* object, std::string_view& text) {
    if (!PyUnicode_Check(object)) return false;
    Py_ssize_t length = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(object, &length);
    if (bytes == nullptr) {
        PyErr_Clear();
        return false;
    }
    text = {bytes, static_cast<std::size_t>(length)};
    return true;
}

// A peer's name for itself, as a str: whatever bytes it sent.
inline nanobind::object session_text(std::string_view session) {
    return nanobind::steal(
        PyUnicode_DecodeUTF8(session.data(), static_cast<Py_ssize_t>(session.size()), "backslashreplace"));
}

}  // namespace memfabric::python
