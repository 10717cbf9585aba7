"""How much memory this process may ever have: the machine's, and what its control groups (containers) allow, v1 and v2.

Only reads what the kernel shows; an unreadable file is no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from memfabric_hybrid import _native

ROOT = Path("/")  # where /proc is found; tests have a tree of their own
_V1_NO_LIMIT = 1 << 62  # v1 writes "no limit" as the largest number of pages


class Files(NamedTuple):
    """What the two versions call things."""

    limit: str
    used: str
    cache: str  # in memory.stat: what the kernel gives up first, and counts as used


V1 = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = Files("memory.max", "memory.current", "inactive_file")


class Limit(NamedTuple):
    """`holder` is the file that says so, or this machine; `left_bytes` is what others have not used of it."""

    most_bytes: int
    left_bytes: int
    holder: str


def tightest() -> Limit:
    """The limit that stands in the way first. Swap counts: it holds memory, too."""
    machine = _native.machine_memory_bytes()
    swap = max(0, machine - _ram_bytes())
    limits = [limit for limit in _groups() if limit.most_bytes < machine]
    least = min(limits, default=None)
    if least is None or least.most_bytes + swap >= machine:
        return Limit(machine, machine, "this machine")
    return least._replace(most_bytes=least.most_bytes + swap, left_bytes=least.left_bytes + swap)


def _ram_bytes() -> int:
    for line in _lines(ROOT / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return _native.machine_memory_bytes()


def _groups() -> Iterator[Limit]:
    """Of this process's group and all those above it."""
    for files, mount, path in _own_groups():
        for folder in (mount / path, *(mount / path).parents):
            limit = _number(folder / files.limit)
            if limit is not None:
                used = (_number(folder / files.used) or 0) - _cache_bytes(folder, files)
                yield Limit(limit, max(0, limit - used), str(folder / files.limit))
            if folder == mount:
                break


def _own_groups() -> Iterator[tuple[Files, Path, str]]:
    """Where the groups of this process are: version, mount point, path below it."""
    mounts = list(_mounts())
    for line in _lines(ROOT / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for files, root, mount in mounts:
            if files is (V2 if not controllers else V1) and (not controllers or "memory" in controllers.split(",")):
                # A container may show its own group as the root of the mount, and still name it by its whole path.
                below = path.removeprefix(root.rstrip("/")).strip("/")
                yield files, mount, below if (mount / below).is_dir() else ""


def _mounts() -> Iterator[tuple[Files, str, Path]]:
    for line in _lines(ROOT / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            yield V2, root, ROOT / mount.lstrip("/")
        elif kind == "cgroup" and "memory" in options.split(","):
            yield V1, root, ROOT / mount.lstrip("/")


def _cache_bytes(folder: Path, files: Files) -> int:
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == files.cache:
            return int(value)
    return 0


def _number(file: Path) -> int | None:
    """None: there is no such file, or it says that there is no limit."""
    for line in _lines(file):
        if line.isdecimal() and int(line) < _V1_NO_LIMIT:
            return int(line)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
