// SPDX-License-Identifier: Apache-2.0
//
// Unsigned numbers as the interface takes them: int and its subclasses (enums), and whatever has __index__ (numpy's
// integers). Not float, not str; negative or too large numbers are a TypeError too.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <string>

namespace memfabric::python {

// False, without a Python error set, if the object is no such number.
inline bool to_number(PyObject* object, std::uint64_t& number) {
    PyObject* index = nullptr;
    if (!PyLong_Check(object)) [[unlikely]] {
        if (!PyIndex_Check(object) || (index = PyNumber_Index(object)) == nullptr) {
            PyErr_Clear();
            return false;
        }
        object = index;
    }
    static_assert(sizeof(unsigned long) == sizeof number);
    number = PyLong_AsUnsignedLong(object);  // not LongLong, which goes byte by byte: 3 times as slow
    Py_XDECREF(index);
    if (number == std::numeric_limits<std::uint64_t>::max() && PyErr_Occurred() != nullptr) [[unlikely]] {
        PyErr_Clear();
        return false;
    }
    return true;
}

template <typename T>
bool to_number(PyObject* object, T& number) {
    std::uint64_t wide = 0;
    if (!to_number(object, wide) || wide > std::numeric_limits<T>::max()) return false;
    number = static_cast<T>(wide);
    return true;
}

// Why the object is no number of 0 to `largest`, as the end of a sentence.
inline std::string fault_of_number(PyObject* object, std::uint64_t largest) {
    PyObject* index = PyIndex_Check(object) ? PyNumber_Index(object) : nullptr;
    PyObject* text = index == nullptr ? nullptr : PyObject_Str(index);
    const char* shown = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
    PyErr_Clear();  // of an __index__ that raises, or a number that is too long to be shown
    std::string why = shown == nullptr
                          ? std::string("must be an integer, not ") + Py_TYPE(object)->tp_name
                          : std::string("is ") + shown + ", which does not fit into 0.." + std::to_string(largest);
    Py_XDECREF(text);
    Py_XDECREF(index);
    return why;
}

template <typename T>
struct Number {  // an argument of a bound function
    T value;
    operator T() const { return value; }
};
using U16 = Number<std::uint16_t>;
using U32 = Number<std::uint32_t>;
using U64 = Number<std::uint64_t>;

}  // namespace memfabric::python

namespace nanobind::detail {

template <typename T>
struct type_caster<memfabric::python::Number<T>> {
    NB_TYPE_CASTER(memfabric::python::Number<T>, const_name("int"))

    bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
        return memfabric::python::to_number(source.ptr(), value.value);
    }
    static handle from_cpp(const memfabric::python::Number<T>& number, rv_policy, cleanup_list*) noexcept {
        return PyLong_FromUnsignedLongLong(number.value);
    }
};

}  // namespace nanobind::detail
