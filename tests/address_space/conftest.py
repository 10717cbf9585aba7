"""Neighbours for the tests of the exchange; all are gone after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.neighbours import House, Puppet


@pytest.fixture
def houses() -> Iterator[Callable[[int], House]]:
    with ExitStack() as stack:

        def build(instance: int) -> House:
            house = House(instance)
            stack.callback(house.close)
            return house

        yield build


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    with ExitStack() as stack:
        yield Puppet(stack)
