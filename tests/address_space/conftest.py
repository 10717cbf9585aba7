"""Neighbours for the tests of the exchange; all are gone after the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.neighbours import MakeNeighbour, RecordingNeighbour, ScriptedNeighbour
from support.pool_twins import TwinHost


@pytest.fixture
def neighbours() -> Iterator[MakeNeighbour]:
    with ExitStack() as stack:

        def build(instance: int) -> RecordingNeighbour:
            neighbour = RecordingNeighbour(instance)
            stack.callback(neighbour.close)
            return neighbour

        yield build


@pytest.fixture
def scripted() -> Iterator[ScriptedNeighbour]:
    with ExitStack() as stack:
        yield ScriptedNeighbour(stack)


@pytest.fixture
def host() -> Iterator[TwinHost]:
    """Of pools whose neighbours and store are twins."""
    host = TwinHost()
    yield host
    host.close()
