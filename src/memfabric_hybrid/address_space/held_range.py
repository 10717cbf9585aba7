"""The range of addresses of a new object: held in the store, and given back if the object does not come to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError
from memfabric_hybrid.store import FAREWELL_S, Store


@contextmanager
def held_range(store: Store, name: str, size_bytes: int, *, asked: str, deadline: Deadline) -> Iterator[int]:
    """Where it begins. `asked`: who asked for what, for those who ask for something else."""
    base = store.hold_range(name, size_bytes, asked=asked, deadline=deadline)
    try:
        yield base
    except BaseException:
        with suppress(FabricError):  # a store that is away, or that we leave, forgets it by itself
            store.release_range(name, deadline=Deadline(FAREWELL_S))
        raise
