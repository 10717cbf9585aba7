// SPDX-License-Identifier: Apache-2.0
#include "python_module/arguments/number_list.h"

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "python_module/arguments/number.h"

namespace memfabric::python {
namespace {

enum class Kind { Signed, Unsigned, NoInteger };

// The one letter of a struct-module format, if its byte order is this machine's.
Kind kind_of(const char* format) {
    std::string_view letters = format == nullptr ? "B" : format;
    constexpr std::string_view native = std::endian::native == std::endian::little ? "@=<" : "@=>";
    if (letters.size() == 2 && native.find(letters[0]) != native.npos) letters.remove_prefix(1);
    if (letters.size() != 1) return Kind::NoInteger;
    if (std::string_view("bhilqn").find(letters[0]) != letters.npos) return Kind::Signed;
    if (std::string_view("BHILQN").find(letters[0]) != letters.npos) return Kind::Unsigned;
    return Kind::NoInteger;
}

}  // namespace

NumberList::~NumberList() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

bool NumberList::load(PyObject* object, std::string& why) {
    if (PyList_Check(object) || PyTuple_Check(object)) return load_sequence(object, why);
    const char* name = Py_TYPE(object)->tp_name;
    if (!PyObject_CheckBuffer(object)) {
        why = std::string("must be a list or tuple of integers, or an integer array, not ") + name;
        return false;
    }
    if (PyObject_GetBuffer(object, &buffer_, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
        PyErr_Clear();
        why = std::string("is a ") + name + " whose memory cannot be read; pass a list or an integer array";
        return false;
    }
    if (load_buffer()) return true;
    why = std::string("must be a one-dimensional array of integers in this machine's byte order, not a ") + name +
          " with " + std::to_string(buffer_.ndim) + " dimensions of format '" +
          (buffer_.format == nullptr ? "B" : buffer_.format) + "'";
    return false;
}

bool NumberList::load_sequence(PyObject* sequence, std::string& why) {
    // __index__ of an item may run code that shortens the list: ask for its size anew each time.
    converted_.resize(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(sequence)));
    for (std::size_t i = 0; i < converted_.size(); ++i) {
        if (static_cast<Py_ssize_t>(i) >= PySequence_Fast_GET_SIZE(sequence)) {
            why = "became shorter while it was read";
            return false;
        }
        PyObject* item = PySequence_Fast_GET_ITEM(sequence, static_cast<Py_ssize_t>(i));
        if (to_number(item, converted_[i])) continue;
        why = "has an item that is no address or size: item " + std::to_string(i) + " " +
              fault_of_number(item, std::numeric_limits<std::uint64_t>::max());
        return false;
    }
    numbers_ = converted_;
    return true;
}

bool NumberList::load_buffer() {
    const Kind kind = kind_of(buffer_.format);
    if (buffer_.ndim != 1 || kind == Kind::NoInteger) return false;
    const bool is_signed = kind == Kind::Signed;
    switch (buffer_.itemsize) {
        case 8:  // a negative number reads as a huge one, which no check lets pass
            if (reinterpret_cast<std::uintptr_t>(buffer_.buf) % alignof(std::uint64_t) != 0 ||
                buffer_.strides[0] != static_cast<Py_ssize_t>(sizeof(std::uint64_t))) {
                widen<std::uint64_t>();
                return true;
            }
            numbers_ = {static_cast<const std::uint64_t*>(buffer_.buf), static_cast<std::size_t>(buffer_.shape[0])};
            return true;
        case 4:
            is_signed ? widen<std::int32_t>() : widen<std::uint32_t>();
            return true;
        case 2:
            is_signed ? widen<std::int16_t>() : widen<std::uint16_t>();
            return true;
        case 1:
            is_signed ? widen<std::int8_t>() : widen<std::uint8_t>();
            return true;
        default:
            return false;
    }
}

template <typename T>
void NumberList::widen() {
    const auto* items = static_cast<const char*>(buffer_.buf);
    converted_.resize(static_cast<std::size_t>(buffer_.shape[0]));
    for (std::size_t i = 0; i < converted_.size(); ++i) {
        T item;
        std::memcpy(&item, items + static_cast<Py_ssize_t>(i) * buffer_.strides[0], sizeof item);
        converted_[i] = static_cast<std::uint64_t>(item);
    }
    numbers_ = converted_;
}

}  // namespace memfabric::python
