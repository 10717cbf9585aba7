"""The control pages of a heap that is being created: each rank encloses one with its share, and one of them counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from memfabric_hybrid import _native
from memfabric_hybrid.errors import resource_failure
from memfabric_hybrid.machine.file_descriptors import duplicate


class ControlPages:
    """Our control page, and those that neighbours enclosed with their shares, until it is known which one counts."""

    def __init__(self, rank: int, rank_size: int) -> None:
        self.own = _native.create_control_page(rank_size)
        self._lock = threading.Lock()  # shares come on other threads, also while we choose
        self._fds: dict[int, int] | None = {rank: self.own}

    def take(self, rank: int, fds: Sequence[int]) -> None:
        """Whoever attaches a share. The newest page of a rank counts: it may have come back."""
        with self._lock:
            if self._fds is None or len(fds) != 1:
                return
            replaced = self._fds.get(rank)
            try:
                self._fds[rank] = duplicate(fds[0])
            except OSError as error:
                raise resource_failure(f"the control page of rank {rank} cannot be kept", error) from error
            if replaced is not None:
                os.close(replaced)

    @contextmanager
    def chosen(self, rank: int) -> Iterator[int]:
        """The page of that rank; afterwards the others are closed. Ours stays: neighbours may be shown it again."""
        with self._lock:
            page = duplicate((self._fds or {})[rank])
        try:
            yield page
        finally:
            os.close(page)
            self.close_others()

    def close_others(self) -> None:
        with self._lock:
            fds, self._fds = self._fds or {}, None
        for fd in fds.values():
            if fd != self.own:
                os.close(fd)
