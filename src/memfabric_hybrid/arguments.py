"""Checks of argument *types* at the API boundary; wrong values are the callee's business.

A wrong type is a programming error and raises TypeError, as it does for any built-in function; so does a number
that the documented C type of the parameter cannot hold.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

U16_MAX = (1 << 16) - 1
U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1


def integer(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None


def unsigned(name: str, value: SupportsIndex, limit: int) -> int:
    """`value` as an int in 0..limit."""
    number = integer(name, value)
    if not 0 <= number <= limit:
        raise TypeError(f"{name} is {number}, which does not fit into 0..{limit}")
    return number


def u16(name: str, value: SupportsIndex) -> int:
    return unsigned(name, value, U16_MAX)


def u32(name: str, value: SupportsIndex) -> int:
    return unsigned(name, value, U32_MAX)


def u64(name: str, value: SupportsIndex) -> int:
    return unsigned(name, value, U64_MAX)


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return value


def function(name: str, value: object) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")
