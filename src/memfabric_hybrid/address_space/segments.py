"""A member's own memory: anonymous files that exist only as descriptors, so nothing is left after any kind of death."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from memfabric_hybrid import _native, logs, settings
from memfabric_hybrid.address_space import prefault
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.errors import InvalidParam, MallocFailed, NoResources
from memfabric_hybrid.machine import memory_limits

log = logs.get(__name__)
WRITE_SEALS = fcntl.F_SEAL_WRITE | 0x10  # and F_SEAL_FUTURE_WRITE, which Python does not know
MOST_PER_RANK = 200  # descriptors of one rank travel in one message; the kernel's limit for that is 253


class Placement(msgspec.Struct, frozen=True):
    """Where memory should come from. `strict`: only from that node; otherwise the node is a preference."""

    numa_node: int | None = None
    strict: bool = True


class Segment(msgspec.Struct):
    """A piece of a slot. Owns its descriptor until `close()`."""

    tier: Tier
    slot_offset: int
    size_bytes: int
    fd: int
    page_bytes: int

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def create(tier: Tier, slot_offset: int, size_bytes: int, placement: Placement) -> Segment:
    """New zeroed memory. MallocFailed when it could never be held, NoResources without a descriptor for it."""
    total = _native.machine_memory_bytes()
    if size_bytes > total:
        raise MallocFailed(f"{tier.name} of {size_bytes} bytes was asked for, this machine has {total} bytes in all")
    node = -1
    if placement.numa_node is not None:
        check_node(placement.numa_node)
        node = placement.numa_node
    fills = settings.prefault_wanted()
    fd, page_bytes = _native.create_segment(size_bytes, settings.huge_pages_wanted(), node, placement.strict)
    made = Segment(tier, slot_offset, size_bytes, fd, page_bytes)
    try:
        if page_bytes < _native.HUGE_PAGE_BYTES:  # huge pages are set aside already, and no memory limit counts them
            _check_limit(made)
        if fills:
            prefault.fill(fd, size_bytes)
    except BaseException:
        made.close()
        raise
    return made


def _check_limit(made: Segment) -> None:
    """MallocFailed for what this process may never have; a word about what it may not get as things are."""
    limit = memory_limits.tightest()
    asked = f"{made.tier.name} of {made.size_bytes} bytes was asked for"
    if made.size_bytes > limit.most_bytes:
        raise MallocFailed(
            f"{asked}, this process may have {limit.most_bytes} bytes in all ({limit.holder}); "
            "ask for less, or raise the memory limit of the container"
        )
    if made.size_bytes > limit.left_bytes:
        log.warning(
            "%s, and %d of the %d bytes that this process may have (%s) are left: who touches more is killed",
            asked, limit.left_bytes, limit.most_bytes, limit.holder,
        )  # fmt: skip


def adopt(shm_fd: int, size_bytes: int) -> Segment:
    """DRAM in a memory file the program brings along; it is sealed against cutting, its descriptor is duplicated.

    Neighbours map it: what could be taken away from under them (a file that shrinks, a file system that is full) would
    crash them.
    """
    try:
        status = os.fstat(shm_fd)
    except OSError as error:
        raise InvalidParam(f"shm_fd {shm_fd} is not an open descriptor: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise InvalidParam(f"shm_fd {shm_fd} is not a shared-memory file")
    if status.st_size < size_bytes:
        raise InvalidParam(
            f"shm_fd {shm_fd} has {status.st_size} bytes, local_dram_size needs {size_bytes} (rounded up to 2 MiB)"
        )
    if fcntl.fcntl(shm_fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        raise InvalidParam(f"shm_fd {shm_fd} is not open for reading and writing")
    if _seals(shm_fd) & WRITE_SEALS:
        raise InvalidParam(f"shm_fd {shm_fd} is sealed against writing, and ranks write into it: bring one that is not")
    own = fcntl.fcntl(shm_fd, fcntl.F_DUPFD_CLOEXEC, _native.LOWEST_OWN_FD)
    made = Segment(Tier.DRAM, 0, size_bytes, own, os.fstatvfs(shm_fd).f_bsize)
    try:
        if not _sealed(own):
            raise InvalidParam(
                f"shm_fd {shm_fd} could be cut by whoever has the file, and every rank that touches it would crash: "
                "bring one that can be sealed, from memfd_create with MFD_ALLOW_SEALING"
            )
        if made.page_bytes >= _native.HUGE_PAGE_BYTES:
            prefault.fill(own, size_bytes)  # there may be no huge page left when a rank touches it, which crashes it
    except BaseException:
        made.close()
        raise
    return made


def _sealed(fd: int) -> bool:
    """Whether the file cannot be cut any more; from now on, if it lets itself be sealed."""
    with suppress(OSError):  # one that was not made for it: a file of /dev/shm, or sealed against further seals
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return bool(_seals(fd) & fcntl.F_SEAL_SHRINK)


def _seals(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # a file that cannot have any
        return 0


def check_room(count: int) -> None:
    if count >= MOST_PER_RANK:
        raise NoResources(f"a rank can have {MOST_PER_RANK} segments (extend_local_mem calls), all are in use")


def check_node(node: int) -> None:
    online = online_nodes()
    if node not in online:
        raise InvalidParam(f"NUMA node {node} is not online; this machine has {sorted(online)}")


def online_nodes() -> set[int]:
    """The machine's NUMA nodes; {0} where the kernel knows of none."""
    path = Path("/sys/devices/system/node/online")
    if not path.exists():
        return {0}
    nodes: set[int] = set()
    for part in path.read_text().strip().split(","):
        first, _, last = part.partition("-")
        nodes.update(range(int(first), int(last or first) + 1))
    return nodes
