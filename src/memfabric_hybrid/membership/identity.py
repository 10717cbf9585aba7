"""Which host is this: members that share a host can share memory, all others need the network."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from memfabric_hybrid import settings


def host_identity() -> str:
    """What the environment says, else the kernel's."""
    return settings.text(settings.HOST_IDENTITY) or _kernel_identity()


@functools.cache
def _kernel_identity() -> str:
    """Same boot and same network namespace = same host, as far as abstract sockets and descriptors can travel."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = os.stat("/proc/self/ns/net").st_ino
    return f"{boot_id}/{namespace}"
