// SPDX-License-Identifier: Apache-2.0
//
// Arguments of a method that CPython calls directly (METH_FASTCALL | METH_KEYWORDS), for calls where nanobind's
// dispatch would cost more than the work.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "python_module/arguments/number.h"

namespace memfabric::python {

template <std::size_t Count>
struct Signature {
    Signature(const char* method_name, const std::array<const char*, Count>& argument_names, std::size_t required_count)
        : method(method_name), required(required_count) {
        for (std::size_t i = 0; i < Count; ++i) names[i] = PyUnicode_InternFromString(argument_names[i]);
    }

    // Keywords in source code are interned strings, so the same object nearly always.
    std::size_t index_of(PyObject* name) const {
        for (std::size_t i = 0; i < Count; ++i) {
            if (names[i] == name) return i;
        }
        for (std::size_t i = 0; i < Count; ++i) {
            if (PyUnicode_Compare(names[i], name) == 0) return i;
        }
        return Count;
    }

    const char* method;
    std::size_t required;
    std::array<PyObject*, Count> names;  // kept forever
};

// TypeError: what is wrong with one argument, as the end of a sentence.
template <std::size_t Count>
void complain(const Signature<Count>& signature, std::size_t index, const std::string& why) {
    PyErr_Format(PyExc_TypeError, "%s(): %U %s", signature.method, signature.names[index], why.c_str());
}

// The same for the first argument from `first` on that is no number of 64 bits, or of 32 if it is the `narrow` one.
template <std::size_t Count>
void complain_about_first(const Signature<Count>& signature, const std::array<PyObject*, Count>& slots,
                          std::size_t first, std::size_t narrow = Count) {
    for (std::size_t i = first; i < Count; ++i) {
        const std::uint64_t largest =
            i == narrow ? std::numeric_limits<std::uint32_t>::max() : std::numeric_limits<std::uint64_t>::max();
        std::uint64_t number = 0;
        if (slots[i] == nullptr || (to_number(slots[i], number) && number <= largest)) continue;
        return complain(signature, i, fault_of_number(slots[i], largest));
    }
}

// Puts each argument into the slot of its name; slots of arguments that were not given stay nullptr. False with a
// TypeError set if the call does not fit the signature.
template <std::size_t Count>
bool sort_arguments(const Signature<Count>& signature, PyObject* const* arguments, Py_ssize_t positional_count,
                    PyObject* keyword_names, std::array<PyObject*, Count>& slots) {
    const auto positional = static_cast<std::size_t>(positional_count);
    if (positional > Count) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zu arguments at most, %zu were given", signature.method, Count,
                     positional);
        return false;
    }
    for (std::size_t i = 0; i < positional; ++i) slots[i] = arguments[i];
    const Py_ssize_t keywords = keyword_names == nullptr ? 0 : PyTuple_GET_SIZE(keyword_names);
    for (Py_ssize_t k = 0; k < keywords; ++k) {
        PyObject* name = PyTuple_GET_ITEM(keyword_names, k);
        const std::size_t i = signature.index_of(name);
        if (i == Count || slots[i] != nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() got %s argument '%U'", signature.method,
                         i == Count ? "an unknown" : "twice the", name);
            return false;
        }
        slots[i] = arguments[positional_count + k];
    }
    for (std::size_t i = 0; i < signature.required; ++i) {
        if (slots[i] == nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() misses the argument '%U'", signature.method, signature.names[i]);
            return false;
        }
    }
    return true;
}

}  // namespace memfabric::python
