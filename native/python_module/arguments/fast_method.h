// SPDX-License-Identifier: Apache-2.0
//
// Binds a C++ function as a method that CPython calls directly. Its TypeErrors are ours: they name the method and the
// argument, where nanobind would list what it could have accepted.
//
//     int copy(SpaceObject& self, const NumberList& sizes, U64 flags);
//     def_fast<&copy>(type, {"copy", {"sizes", "flags"}, /*required=*/1, "Copy it."});
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "python_module/arguments/fast_arguments.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/number_list.h"

namespace memfabric::python {

// How a parameter of type T is filled. `kDefault`: what documents say it is if it is not given. `load`: false with the
// reason, the end of a sentence that names the argument.
template <typename T>
struct Argument;

template <typename T>
struct Argument<Number<T>> {
    static constexpr const char* kDefault = "0";
    Number<T> value{0};
    bool load(PyObject* object, std::string& why) {
        if (to_number(object, value.value)) [[likely]]
            return true;
        why = fault_of_number(object, std::numeric_limits<T>::max());
        return false;
    }
    Number<T> get() { return value; }
};

struct OptionalNumber {
    std::optional<std::uint64_t> number;
};

template <>
struct Argument<OptionalNumber> {
    static constexpr const char* kDefault = "None";
    OptionalNumber value;
    bool load(PyObject* object, std::string& why) {
        std::uint64_t number = 0;
        if (object == Py_None) return true;
        if (!to_number(object, number)) {
            why = fault_of_number(object, std::numeric_limits<std::uint64_t>::max());
            return false;
        }
        value.number = number;
        return true;
    }
    OptionalNumber get() { return value; }
};

template <>
struct Argument<const NumberList&> {
    static constexpr const char* kDefault = "()";
    NumberList value;
    bool load(PyObject* object, std::string& why) { return value.load(object, why); }
    const NumberList& get() { return value; }
};

template <>
struct Argument<const std::string&> {
    static constexpr const char* kDefault = "''";
    std::string value;
    bool load(PyObject* object, std::string& why) {
        Py_ssize_t size = 0;
        const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
        if (text == nullptr) {
            PyErr_Clear();
            why = std::string("must be a str, not ") + Py_TYPE(object)->tp_name;
            return false;
        }
        value.assign(text, static_cast<std::size_t>(size));
        return true;
    }
    const std::string& get() { return value; }
};

template <std::size_t Count>
struct MethodText {
    const char* name;
    std::array<const char*, Count> arguments;
    std::size_t required;  // the others have their defaults if they are not given
    const char* doc;
    const char* called = nullptr;  // what users call it, if the method itself is private
};

template <auto function>
struct FastMethod;

template <typename Self, typename Result, typename... Arguments, Result (*function)(Self&, Arguments...)>
struct FastMethod<function> {
    static constexpr std::size_t kCount = sizeof...(Arguments);

    static void bind(nanobind::handle type, const MethodText<kCount>& text) {
        static const Signature<kCount> kept(text.called == nullptr ? text.name : text.called, text.arguments,
                                            text.required);
        static const std::string doc = doc_of(text);
        // CPython keeps the pointer to this table.
        static PyMethodDef definition{text.name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call)),
                                      METH_FASTCALL | METH_KEYWORDS, doc.c_str()};
        signature = &kept;
        type.attr(text.name) =
            nanobind::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &definition));
    }

private:
    static inline const Signature<kCount>* signature = nullptr;

    static std::string doc_of(const MethodText<kCount>& text) {
        constexpr std::array<const char*, kCount> kDefaults{Argument<Arguments>::kDefault...};
        std::string doc = std::string(text.name) + "($self";
        for (std::size_t i = 0; i < kCount; ++i) {
            doc += std::string(", ") + text.arguments[i];
            if (i >= text.required) doc += std::string("=") + kDefaults[i];
        }
        return doc + ")\n--\n\n" + text.doc;
    }

    static PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* keywords) {
        std::array<PyObject*, kCount> slots{};
        if (!sort_arguments(*signature, arguments, positional, keywords, slots)) return nullptr;
        std::tuple<Argument<Arguments>...> values;
        if (!load(values, slots, std::index_sequence_for<Arguments...>())) return nullptr;
        if (!nanobind::inst_ready(self)) [[unlikely]] {
            PyErr_Format(PyExc_TypeError, "%s(): __init__ of the base class was not called", signature->method);
            return nullptr;
        }
        try {
            Self& object = *nanobind::inst_ptr<std::remove_const_t<Self>>(self);
            const auto run = [&](auto&... value) { return function(object, value.get()...); };
            if constexpr (std::is_void_v<Result>) {
                std::apply(run, values);
                return Py_NewRef(Py_None);
            } else {
                return to_python(std::apply(run, values));
            }
        } catch (nanobind::python_error& error) {
            error.restore();
        } catch (const std::bad_alloc&) {
            PyErr_NoMemory();
        }
        return nullptr;
    }

    template <std::size_t... I>
    static bool load(std::tuple<Argument<Arguments>...>& values, const std::array<PyObject*, kCount>& slots,
                     std::index_sequence<I...> /*indices*/) {
        return (load_one(std::get<I>(values), I, slots[I]) && ...);
    }

    template <typename Value>
    static bool load_one(Value& value, std::size_t index, PyObject* slot) {
        std::string why;
        if (slot == nullptr || value.load(slot, why)) [[likely]]
            return true;
        complain(*signature, index, why);
        return false;
    }

    template <typename Value>
    static PyObject* to_python(Value result) {
        if constexpr (std::signed_integral<Value>) {
            return PyLong_FromLongLong(result);
        } else if constexpr (std::unsigned_integral<Value>) {
            return PyLong_FromUnsignedLongLong(result);
        } else {
            return nanobind::cast(std::move(result)).release().ptr();
        }
    }
};

template <auto function, std::size_t Count>
void def_fast(nanobind::handle type, const MethodText<Count>& text) {
    FastMethod<function>::bind(type, text);
}

}  // namespace memfabric::python
