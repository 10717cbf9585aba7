"""Words of memory, as Numba kernels reach them: loads, stores and atomics at plain addresses, each one instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

ORDERING = "seq_cst"


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def loader(bits: int) -> Callable[..., Any]:
    """An intrinsic that loads a word of so many bits, atomically."""
    word = types.Integer.from_bitwidth(bits, signed=True)

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load_atomic(_pointer(builder, arguments[0], bits), ORDERING, bits // 8)

        return word(types.uint64), generate

    return load


def storer(bits: int) -> Callable[..., Any]:
    """An intrinsic that stores a word, atomically."""
    word = types.Integer.from_bitwidth(bits, signed=True)

    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store_atomic(arguments[1], _pointer(builder, arguments[0], bits), ORDERING, bits // 8)
            return context.get_dummy_value()

        return types.void(types.uint64, word), generate

    return store


def adder(bits: int) -> Callable[..., Any]:
    """An intrinsic that adds to a word and returns what it was."""
    word = types.Integer.from_bitwidth(bits, signed=True)

    @intrinsic
    def add(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.atomic_rmw("add", _pointer(builder, arguments[0], bits), arguments[1], ORDERING)

        return word(types.uint64, word), generate

    return add


def swapper(bits: int) -> Callable[..., Any]:
    """An intrinsic that replaces a word if it is as expected, and returns what it was."""
    word = types.Integer.from_bitwidth(bits, signed=True)

    @intrinsic
    def compare_swap(typing_context: Any, address: Any, expected: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(builder, arguments[0], bits)
            outcome = builder.cmpxchg(pointer, arguments[1], arguments[2], ORDERING, ORDERING)
            return builder.extract_value(outcome, 0)

        return word(types.uint64, word, word), generate

    return compare_swap


@intrinsic
def full_fence(typing_context: Any) -> Any:
    """A fence for everything before and after."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence(ORDERING)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def move_bytes(typing_context: Any, target: Any, source: Any, size_bytes: Any) -> Any:
    """memcpy between two addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer, length = ir.IntType(8).as_pointer(), ir.IntType(64)
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [byte_pointer, byte_pointer, length])
        places = [builder.inttoptr(arguments[place], byte_pointer) for place in (0, 1)]
        builder.call(memcpy, [*places, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), generate


@intrinsic
def pointer_to(typing_context: Any, address: Any) -> Any:
    """The address as the pointer that `numba.carray` takes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), generate


@intrinsic
def call_copy(typing_context: Any, function: Any, target: Any, source: Any, size_bytes: Any) -> Any:
    """The C function at that address, `int32_t copy(void* target, const void* source, uint64_t size_bytes)`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [byte_pointer, byte_pointer, ir.IntType(64)])
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        places = [builder.inttoptr(arguments[place], byte_pointer) for place in (1, 2)]
        return builder.call(pointer, [*places, arguments[3]])

    return types.int32(types.uint64, types.uint64, types.uint64, types.uint64), generate
