"""What a call answers to C, and how a failure becomes one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from memfabric_hybrid.api import boundary
from memfabric_hybrid.errors import FabricError, InvalidParam

P = ParamSpec("P")
Answer = int | tuple[Any, ...]  # a code, or a code and numbers, bytes or what was made


CALLS: dict[str, Callable[..., Answer]] = {}


def c_call(function: Callable[P, Answer]) -> Callable[P, Answer]:
    """For what the C library calls by the function's name: its answer, or the code of what it raises.

    The last error and the log have the rest. What comes out is none of ours: a Python program whose C code called us
    gets it.
    """
    name = f"smem_{function.__name__}"

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            return function(*args, **kwargs)
        except Exception as failure:
            if boundary.is_programs(failure):
                raise
            return int(boundary.record(name, failure))

    CALLS[function.__name__] = call
    return call


def utf8(name: str, text: str) -> str:
    """Names that others see are text; only paths may be any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidParam(f"{name} is {text!a}, which is not UTF-8") from None
    return text


def refused(call: str, find: Callable[[int], object], handle: int) -> int:
    """For a call that goes straight to the core, which does not know this handle: says why not."""
    try:
        find(handle)
    except FabricError as failure:
        return int(boundary.record(call, failure))
    return int(boundary.record(call, InvalidParam(f"{handle:#x} was destroyed meanwhile")))
