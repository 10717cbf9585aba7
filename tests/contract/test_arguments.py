"""Argument types at the API boundary: what counts as a number, and TypeError for all that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memfabric_hybrid.api import arguments
from memfabric_hybrid.bm import BmCopyType


class Indexable:
    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("good", [0, 7, True, BmCopyType.AUTO, np.uint8(7), np.int64(7), Indexable()])
def test_whatever_is_an_integer_to_python(good: Any) -> None:
    assert arguments.u32("x", good) == int(np.asarray(good.__index__()))
    assert type(arguments.u32("x", good)) in (int, bool, BmCopyType)


@pytest.mark.parametrize("bad", [1.0, "1", b"1", None, [1], (), 1j, np.float32(1), object()])
def test_what_is_none(bad: Any) -> None:
    with pytest.raises(TypeError, match=f"x must be an integer, not {type(bad).__name__}"):
        arguments.integer("x", bad)


@pytest.mark.parametrize(("check", "bits"), [(arguments.u16, 16), (arguments.u32, 32), (arguments.u64, 64)])
def test_range_of_the_c_types(check: Any, bits: int) -> None:
    limit = (1 << bits) - 1
    assert check("x", 0) == 0
    assert check("x", limit) == limit
    for outside in (-1, limit + 1, -(1 << 100)):
        with pytest.raises(TypeError, match=rf"x is {outside}, which does not fit into 0\.\.{limit}"):
            check("x", outside)


def test_text_and_functions() -> None:
    assert arguments.text("x", "") == ""
    with pytest.raises(TypeError, match="x must be a str, not bytes"):
        arguments.text("x", b"")
    arguments.function("x", print)
    with pytest.raises(TypeError, match="x must be callable, not NoneType"):
        arguments.function("x", None)
