// SPDX-License-Identifier: Apache-2.0
//
// Bytes as an argument: any contiguous object with the buffer protocol, used where it is; None is none.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "python_module/arguments/fast_method.h"

namespace memfabric::python {

// Thread contract: loaded and destroyed under the GIL, read without it: the object stays as long as this.
class BytesLike {
public:
    BytesLike() = default;
    ~BytesLike() {
        if (given_) PyBuffer_Release(&buffer_);
    }
    BytesLike(const BytesLike&) = delete;
    BytesLike& operator=(const BytesLike&) = delete;

    bool load(PyObject* object, std::string& why) {
        given_ = PyObject_GetBuffer(object, &buffer_, PyBUF_SIMPLE) == 0;
        if (given_) return true;
        PyErr_Clear();
        why = std::string("must be bytes-like and contiguous, not ") + Py_TYPE(object)->tp_name;
        return false;
    }
    std::string_view view() const {
        return given_ ? std::string_view(static_cast<const char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len))
                      : std::string_view();
    }
    bool given() const { return given_; }

private:
    Py_buffer buffer_{};
    bool given_ = false;
};

struct OptionalBytes : BytesLike {
    bool load(PyObject* object, std::string& why) { return object == Py_None || BytesLike::load(object, why); }
    std::optional<std::string_view> bytes() const { return given() ? std::optional(view()) : std::nullopt; }
};

inline std::optional<std::string> owned(const OptionalBytes& bytes) {
    return bytes.given() ? std::optional<std::string>(bytes.view()) : std::nullopt;
}

template <>
struct Argument<const BytesLike&> {
    static constexpr const char* kDefault = "b''";
    BytesLike value;
    bool load(PyObject* object, std::string& why) { return value.load(object, why); }
    const BytesLike& get() { return value; }
};

template <>
struct Argument<const OptionalBytes&> {
    static constexpr const char* kDefault = "None";
    OptionalBytes value;
    bool load(PyObject* object, std::string& why) { return value.load(object, why); }
    const OptionalBytes& get() { return value; }
};

}  // namespace memfabric::python
