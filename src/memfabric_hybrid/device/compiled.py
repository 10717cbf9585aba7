"""`numba.njit` that keeps a function's types: with Numba's own, type checkers forget what it takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """A function for kernels; annotations say what users may think of its arguments as."""
    return cast("Callable[P, R]", njit(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A function that becomes a part of whoever calls it."""
    return cast("Callable[P, R]", njit(inline="always")(function))
