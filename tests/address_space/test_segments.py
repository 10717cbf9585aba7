"""A rank's own memory: anonymous files, adopted files, NUMA nodes, and what the machine cannot give."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from memfabric_hybrid import _native
from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.layout import MIB, Tier
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.errors import InvalidParam, MallocFailed, NoResources


@pytest.fixture
def file() -> Iterator[int]:
    fd = os.memfd_create("the program's own", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4 * MIB)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("huge", ["auto", "off"])
def test_new_memory_is_zeroed_and_has_no_name(monkeypatch: pytest.MonkeyPatch, huge: str) -> None:
    monkeypatch.setenv("MF_HUGE_PAGES", huge)
    segment = segments.create(Tier.HBM, 2 * MIB, 4 * MIB, Placement())
    assert os.fstat(segment.fd).st_size == 4 * MIB
    assert os.pread(segment.fd, 10, 4 * MIB - 10) == bytes(10)
    assert "memfd" in os.readlink(f"/proc/self/fd/{segment.fd}")
    assert segment.page_bytes in (4096, 2 * MIB)
    assert not os.get_inheritable(segment.fd)
    segment.close()
    segment.close()


def test_size_cannot_be_changed_by_anybody() -> None:
    """A neighbour that shrank our file would make our loads crash."""
    segment = segments.create(Tier.DRAM, 0, 2 * MIB, Placement())
    for size in (0, MIB, 4 * MIB):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.fd, size)
    segment.close()


def test_more_than_the_machine_has() -> None:
    total = _native.machine_memory_bytes()
    assert total > 64 * MIB
    with pytest.raises(MallocFailed, match=f"{total + 1}.*{total}"):
        segments.create(Tier.DRAM, 0, total + 1, Placement())


def test_numa_nodes() -> None:
    online = segments.online_nodes()
    assert 0 in online
    for strict in (True, False):
        segments.create(Tier.DRAM, 0, 2 * MIB, Placement(0, strict)).close()
    missing = max(online) + 1
    with pytest.raises(InvalidParam, match=f"NUMA node {missing} "):
        segments.create(Tier.DRAM, 0, 2 * MIB, Placement(missing))


@pytest.mark.parametrize(("listed", "nodes"), [("0\n", {0}), ("0-3\n", {0, 1, 2, 3}), ("0,2-3,7\n", {0, 2, 3, 7})])
def test_list_of_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listed: str, nodes: set[int]) -> None:
    online = tmp_path / "online"
    online.write_text(listed)
    monkeypatch.setattr(segments, "Path", lambda path: online)
    assert segments.online_nodes() == nodes


def test_adopted_file_is_duplicated(file: int) -> None:
    segment = segments.adopt(file, 2 * MIB)
    assert segment.fd != file
    assert not os.get_inheritable(segment.fd)
    segment.close()
    os.fstat(file)


def test_adopted_file_must_do(file: int) -> None:
    with pytest.raises(InvalidParam, match=f"{4 * MIB} bytes.*{4 * MIB + 2}"):
        segments.adopt(file, 4 * MIB + 2)
    with pytest.raises(InvalidParam, match="not an open descriptor"):
        segments.adopt(-5, 1)
    read_only = os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
    with pytest.raises(InvalidParam, match="reading and writing"):
        segments.adopt(read_only, 1)
    os.close(read_only)
    folder = os.open("/", os.O_RDONLY)
    with pytest.raises(InvalidParam, match="not a shared-memory file"):
        segments.adopt(folder, 1)
    os.close(folder)


def test_adopted_file_cannot_be_cut_any_more(file: int) -> None:
    segment = segments.adopt(file, 2 * MIB)
    with pytest.raises(PermissionError):
        os.ftruncate(file, MIB)
    with pytest.raises(PermissionError):
        os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_TRUNC)
    segment.close()


@pytest.mark.parametrize("where", ["/dev/shm", "/tmp", "memfd"])
def test_file_that_could_be_cut_is_refused_with_the_remedy(where: str) -> None:
    """Whoever has the file could take it away from under every rank that has mapped it."""
    with tempfile.TemporaryFile(dir=where if where != "memfd" else None) as file:
        fd = file.fileno() if where != "memfd" else os.memfd_create("without seals")
        os.ftruncate(fd, 4 * MIB)
        with pytest.raises(InvalidParam, match="could be cut"):
            segments.adopt(fd, 2 * MIB)
        if where == "memfd":
            os.close(fd)


def test_huge_pages_of_an_adopted_file_are_reserved(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[int] = []
    monkeypatch.setattr(segments.prefault, "fill", lambda fd, size: filled.append(size))
    segments.adopt(file, 2 * MIB).close()
    assert not filled, "ordinary pages are there as long as the machine has memory"
    huge = type("status", (), {"f_bsize": 2 * MIB})
    monkeypatch.setattr(os, "fstatvfs", lambda fd: huge)
    segments.adopt(file, 2 * MIB).close()
    assert filled == [2 * MIB]


def test_room_for_extensions() -> None:
    segments.check_room(segments.MOST_PER_RANK - 1)
    with pytest.raises(NoResources, match=str(segments.MOST_PER_RANK)):
        segments.check_room(segments.MOST_PER_RANK)
