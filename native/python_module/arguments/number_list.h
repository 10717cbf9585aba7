// SPDX-License-Identifier: Apache-2.0
//
// One argument of a batch: a list or tuple of numbers, or any one-dimensional integer buffer. 64-bit buffers (numpy's
// int64, uint64, intp) without gaps are used where they are; everything else is converted once.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace memfabric::python {

class NumberList {
public:
    NumberList() = default;
    ~NumberList();
    NumberList(const NumberList&) = delete;
    NumberList& operator=(const NumberList&) = delete;

    // False with the reason, as the end of a sentence, and without a Python error set, if the object is not a list of
    // numbers. Needs the GIL, as does the destructor; the numbers may be read without it.
    bool load(PyObject* object, std::string& why);
    std::span<const std::uint64_t> numbers() const { return numbers_; }

private:
    bool load_sequence(PyObject* sequence, std::string& why);
    bool load_buffer();
    template <typename T>
    void widen();

    Py_buffer buffer_{};
    std::vector<std::uint64_t> converted_;
    std::span<const std::uint64_t> numbers_;
};

inline std::vector<std::uint64_t> owned(const NumberList& list) {
    return {list.numbers().begin(), list.numbers().end()};
}

}  // namespace memfabric::python
