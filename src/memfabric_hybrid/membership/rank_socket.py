"""A rank socket: the abstract Unix socket under which a member can be found by the others of its host.

Binding it is also the proof that nobody else on this host holds the rank: the kernel frees the name the moment the
process is gone and not before. Whoever asks the store for a rank has bound its rank socket already. So a store that was
restarted, and knows nobody yet, is never even asked for the rank of a living (or merely stopped) member.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress

from memfabric_hybrid import _native, logs
from memfabric_hybrid.errors import Duplicated
from memfabric_hybrid.machine.file_descriptors import open_socket
from memfabric_hybrid.machine.peer_credentials import peer_credentials

log = logs.get(__name__)
VARIANTS = 4  # of a name, should other users sit on some


def socket_name(cluster: str, rank: int) -> str:
    """`cluster` tells the clusters of one host apart: the store's address and the kind of membership."""
    return f"memfabric/{os.geteuid()}/{cluster}/{rank}"


def bind(name: str) -> socket.socket:
    """The listening socket of that name; Duplicated when a living process has it."""
    listener = try_to_bind(name)
    if listener is None:
        raise Duplicated(f"{name!r} {held_by(name)}")
    return listener


def try_to_bind(name: str) -> socket.socket | None:
    """The listening socket of that name; None when a living process has it, of our user or root's.

    Names are free for all: another user may sit on one. Members then take its next variant, all in the same order.
    """
    for variant in range(VARIANTS):
        place = _variant(name, variant)
        listener = _bound(place)
        if listener is not None:
            return listener
        holder = _holder(place)
        if holder is None or _native._is_our_user(*holder):
            return None
        log.warning("%r is held by process %d of user %d, who has no business there", place, *holder)
    return None


def _variant(name: str, number: int) -> str:
    return f"{name}/{number}" if number else name


def _bound(name: str) -> socket.socket | None:
    kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    listener = open_socket(socket.AF_UNIX, kind)
    try:
        listener.bind("\0" + name)
        listener.listen(_native.MAX_RANKS)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return listener


def held_by(name: str) -> str:
    """Who listens there, as the end of a sentence; without the process id when the kernel does not tell."""
    for variant in range(VARIANTS):
        holder = _holder(_variant(name, variant))
        if holder is not None and _native._is_our_user(*holder):
            return f"belongs to a living process of this host (pid {holder[0]})"
    return "belongs to a living process of this host"


def _holder(name: str) -> tuple[int, int] | None:
    """(pid, uid) of who listens there; None if nobody does, or does not answer."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(0.2)
        probe.connect("\0" + name)
        return peer_credentials(probe)
    return None
