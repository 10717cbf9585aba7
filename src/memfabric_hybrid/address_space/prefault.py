"""Memory that is there before anybody touches it: what the machine or the container does not have fails at create."""

from __future__ import annotations

import os

from memfabric_hybrid import logs
from memfabric_hybrid.errors import MallocFailed
from memfabric_hybrid.waiting_log import WaitingLog

STEP_BYTES = 256 << 20  # between looks whether to say how far it is, and for signal handlers

_log = logs.get(__name__)


def fill(fd: int, size_bytes: int) -> None:
    """Allocates every page of the file; says how far it is when that takes long. MallocFailed: too few are left."""
    waiting = WaitingLog(_log)
    for done in range(0, size_bytes, STEP_BYTES):
        try:
            os.posix_fallocate(fd, done, min(STEP_BYTES, size_bytes - done))
        except OSError as error:
            raise MallocFailed(
                f"MF_PREFAULT: only {done} of {size_bytes} bytes could be allocated: {error.strerror}; ask for less"
            ) from error
        waiting.tell(f"MF_PREFAULT has allocated {done} of {size_bytes} bytes")
