"""Namespaces of the kernel, without names: each is a descriptor, and is gone when nobody holds or uses it any more."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from support import processes

NEW_MOUNTS = 0x00020000
NEW_USERS = 0x10000000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_RECURSIVE, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """New namespaces for this thread; of processes (NEW_PIDS) for the children it forks from now on."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def enter_network(descriptor: int) -> None:
    """This thread, and what it starts from now on; sockets that are open already stay where they were made."""
    _check(_libc.setns(descriptor, NEW_NETWORK), f"setns({descriptor}, network)")


def own_network() -> int:
    """A descriptor of the network namespace that this thread is in; the caller closes it."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def new_network() -> int:
    """A descriptor of a new network namespace, in which nothing is but a loopback device that is down."""
    before = own_network()
    try:
        unshare(NEW_NETWORK)
        made = own_network()
        enter_network(before)
        return made
    finally:
        os.close(before)


@contextlib.contextmanager
def entered(network: int) -> Iterator[None]:
    """This thread is in that network namespace inside the block, and so is every process it starts there."""
    before = own_network()
    try:
        enter_network(network)
        try:
            yield
        finally:
            enter_network(before)
    finally:
        os.close(before)


def holders(kind: str, inode: int) -> set[int]:
    """The living in a namespace ("net", "pid"), or with a descriptor of it: when there are none, it is gone."""
    name = f"{kind}:[{inode}]"
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        if processes.state(int(process.name)) == "Z":
            continue
        for pattern in (f"task/*/ns/{kind}", "fd/*"):
            if any(_points_to(link, name) for link in process.glob(pattern)):
                found.add(int(process.name))
    return found


def _points_to(link: Path, name: str) -> bool:
    try:
        return os.readlink(link) == name
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # it ended while we looked, or it is somebody whom even root may not look into


def map_only_root() -> None:
    """After NEW_USERS, by root: it stays root inside, and nobody else has a number there."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text("0 0 1")
    Path("/proc/self/gid_map").write_text("0 0 1")


def mount_own_proc() -> None:
    """After NEW_MOUNTS and NEW_PIDS, in the child: /proc counts as getpid() does. Nobody else's mounts change."""
    _check(_libc.mount(None, b"/", None, _MS_RECURSIVE | _MS_PRIVATE, None), "mount(/, private)")
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount(/proc)")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
