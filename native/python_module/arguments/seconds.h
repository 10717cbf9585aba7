// SPDX-License-Identifier: Apache-2.0
//
// A time-out as an argument: seconds, or None for none.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "python_module/arguments/fast_method.h"

namespace memfabric::python {

inline constexpr double kLongestTimeoutS = 1e9;  // 30 years; more would overflow the clock

// Of a time-out, whatever the number.
inline std::chrono::nanoseconds nanoseconds_of(double timeout_s) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::clamp(timeout_s, 0.0, kLongestTimeoutS)));
}

class Timeout {
public:
    Timeout() = default;
    explicit Timeout(double seconds) : seconds_(seconds) {}

    // ValueError for one that is negative.
    std::optional<std::chrono::nanoseconds> limit() const {
        if (!seconds_) return std::nullopt;
        if (!(*seconds_ >= 0)) {
            std::array<char, 32> shown;
            std::snprintf(shown.data(), shown.size(), "%g", *seconds_);
            PyErr_Format(PyExc_ValueError, "timeout is %s s, expected 0 or more", shown.data());
            throw nanobind::python_error();
        }
        return nanoseconds_of(*seconds_);
    }

private:
    std::optional<double> seconds_;
};

template <>
struct Argument<Timeout> {
    static constexpr const char* kDefault = "None";
    Timeout value;
    bool load(PyObject* object, std::string& why) {
        if (object == Py_None) return true;
        const double seconds = PyFloat_AsDouble(object);
        if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            why = std::string("must be a number of seconds or None, not ") + Py_TYPE(object)->tp_name;
            return false;
        }
        value = Timeout(seconds);
        return true;
    }
    Timeout get() { return value; }
};

}  // namespace memfabric::python
