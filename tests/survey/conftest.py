"""One of everything, for all tests of the survey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.ports import reserved_port
from survey.scene import Scene, scene


@pytest.fixture(scope="module")
def one_of_everything() -> Iterator[Scene]:
    """Made once: that nothing changes it is what is tested."""
    with reserved_port("127.0.0.1") as port, scene(f"tcp://127.0.0.1:{port}") as made:
        yield made
