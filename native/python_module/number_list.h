// SPDX-License-Identifier: Apache-2.0
//
// One argument of a batch: a list or tuple of numbers, or any one-dimensional integer buffer. 64-bit buffers (numpy's
// int64, uint64, intp) are used where they are; everything else is converted once.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <vector>

namespace memfabric::python {

class NumberList {
public:
    NumberList() = default;
    ~NumberList();
    NumberList(const NumberList&) = delete;
    NumberList& operator=(const NumberList&) = delete;

    // False, without a Python error set, if the object is not a list of numbers. Needs the GIL, as does the destructor;
    // the numbers may be read without it.
    bool load(PyObject* object);
    std::span<const std::uint64_t> numbers() const { return numbers_; }

private:
    bool load_sequence(PyObject* sequence);
    bool load_buffer();
    template <typename T>
    void widen();

    Py_buffer buffer_{};
    std::vector<std::uint64_t> converted_;
    std::span<const std::uint64_t> numbers_;
};

}  // namespace memfabric::python

namespace nanobind::detail {

template <>
struct type_caster<memfabric::python::NumberList> {
    using Value = memfabric::python::NumberList;
    template <typename T>
    using Cast = Value&;
    static constexpr auto Name = const_name("collections.abc.Sequence[int] | collections.abc.Buffer");

    bool from_python(handle source, uint32_t, cleanup_list*) noexcept { return value.load(source.ptr()); }
    explicit operator Value&() { return value; }

    Value value;
};

}  // namespace nanobind::detail
