"""How many descriptors this process may have, and which of them are never ours.

Links to all ranks of a large host are more than the usual 1024. The numbers 0 to 2 are the program's, also while it has
closed them: what it prints must not arrive on our sockets.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from memfabric_hybrid import _native, logs

PER_RANK = 8  # a link each way, memory on the way, or, for the store, a few connections of each
FOR_THE_REST = 256  # what the program has open, and what we have whoever is there

LOWEST_OWN = _native.LOWEST_OWN_FD

_log = logs.get(__name__)


def enough_for(ranks: int) -> int:
    """Descriptors of a process that has to do with so many ranks."""
    return PER_RANK * ranks + FOR_THE_REST


def allow_enough(ranks: int) -> None:
    """Raises the soft limit to what so many ranks need, as far as the hard one lets it, if it is lower than that."""
    enough = enough_for(ranks)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= enough:
        return
    allowed = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
    if allowed <= soft:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    _log.info(
        "this process may have %d descriptors now (soft limit of ulimit -n), %d before: %d ranks need %d",
        allowed, soft, ranks, enough,
    )  # fmt: skip


def most_allowed() -> int:
    """How many descriptors one part of this process may come to have, if its limit is raised as far as it can be."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else max(hard // 2, hard - FOR_THE_REST)


def open_socket(family: int, kind: int, protocol: int = 0) -> socket.socket:
    """A new socket at a number that may be ours."""
    made = socket.socket(family, kind, protocol)
    try:
        return above_standard_streams(made)
    except OSError:
        made.close()
        raise


def duplicate(fd: int) -> int:
    """Another descriptor of the same file, at a number that may be ours."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST_OWN)


def own(made: int) -> int:
    """The same file at a number that may be ours. The one that was given is gone either way."""
    if made >= LOWEST_OWN:
        return made
    try:
        return duplicate(made)
    finally:
        os.close(made)


def above_standard_streams(made: socket.socket) -> socket.socket:
    """The same socket at a number that may be ours; the one that was given is closed. OSError: nothing has changed."""
    if made.fileno() >= LOWEST_OWN:
        return made
    moved = socket.socket(fileno=duplicate(made.fileno()))
    made.close()
    return moved


@contextmanager
def streams_occupied() -> Iterator[None]:
    """What is opened meanwhile gets numbers that may be ours: for others' objects, which cannot be moved afterwards."""
    occupied: list[int] = []
    try:
        while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) < LOWEST_OWN:
            occupied.append(fd)
        os.close(fd)
        yield
    finally:
        for fd in occupied:
            os.close(fd)
