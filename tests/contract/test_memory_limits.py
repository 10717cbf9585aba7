"""What a container may have: `create` does not promise more, and says so when it could get tight."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, settings, shm
from memfabric_hybrid.address_space import prefault, segments
from memfabric_hybrid.address_space.layout import MIB, Tier
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.errors import InvalidParam, MallocFailed
from memfabric_hybrid.machine import memory_limits

MEMINFO = "MemTotal: 33554432 kB\nSwapTotal: 0 kB\n"
V1_MOUNT = "36 30 0:31 ROOT /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2_MOUNT = "36 30 0:31 ROOT /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


class Machine:
    """A tree like that of a machine of 32 GiB, below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", MEMINFO)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def v2(self, path: str, root: str = "/") -> None:
        self.write("proc/self/cgroup", f"0::{path}\n")
        self.write("proc/self/mountinfo", V2_MOUNT.replace("ROOT", root))

    def v1(self, path: str, root: str = "/") -> None:
        self.write("proc/self/cgroup", f"5:cpu:/elsewhere\n4:memory:{path}\n0::/\n")
        self.write("proc/self/mountinfo", V1_MOUNT.replace("ROOT", root))

    def group(self, path: str, **files: str) -> None:
        for name, text in files.items():
            self.write(f"sys/fs/cgroup/{path}/memory.{name}", text + "\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(memory_limits, "ROOT", tmp_path)
    monkeypatch.setattr(memory_limits._native, "machine_memory_bytes", lambda: 32 << 30)
    monkeypatch.setenv("MF_HUGE_PAGES", "off")
    return Machine(tmp_path)


def test_without_groups_the_machine_is_the_limit(machine: Machine) -> None:
    assert memory_limits.tightest() == (32 << 30, 32 << 30, "this machine")


def test_version_2(machine: Machine) -> None:
    """The group above is the tighter one; page cache can be given up."""
    machine.v2("/user/job")
    machine.group("user/job", max=str(512 * MIB), current=str(100 * MIB))
    machine.group("user", max=str(256 * MIB), current=str(120 * MIB), stat=f"anon 5\ninactive_file {20 * MIB}")
    most, left, holder = memory_limits.tightest()
    assert (most, left) == (256 * MIB, 156 * MIB)
    assert holder.endswith("/sys/fs/cgroup/user/memory.max")
    machine.group("user", max="max")
    assert memory_limits.tightest().most_bytes == 512 * MIB


def test_version_1(machine: Machine) -> None:
    machine.v1("/docker/abc")
    no_limit = str((1 << 63) - 4096)
    machine.group("memory", limit_in_bytes=no_limit)
    machine.group("memory/docker/abc", limit_in_bytes=str(256 * MIB), usage_in_bytes=str(56 * MIB))
    most, left, holder = memory_limits.tightest()
    assert (most, left) == (256 * MIB, 200 * MIB)
    assert holder.endswith("memory/docker/abc/memory.limit_in_bytes")


@pytest.mark.parametrize("root", ["/docker/abc", "/"])
def test_inside_a_container_the_mount_shows_its_group_only(machine: Machine, root: str) -> None:
    machine.v1("/docker/abc", root)
    machine.group("memory", limit_in_bytes=str(256 * MIB))
    assert memory_limits.tightest().most_bytes == 256 * MIB


def test_limits_beyond_the_machine_are_none(machine: Machine) -> None:
    machine.v2("/")
    machine.group(".", max=str(64 << 30))
    assert memory_limits.tightest().holder == "this machine"


def test_swap_holds_memory_too(machine: Machine) -> None:
    machine.write("proc/meminfo", f"MemTotal: {24 << 20} kB\n")
    machine.v2("/")
    machine.group(".", max=str(1 << 30), current=str(1 << 29))
    assert memory_limits.tightest()[:2] == (9 << 30, (8 << 30) + (1 << 29))


def test_nonsense_is_no_limit(machine: Machine) -> None:
    machine.v2("/")
    machine.group(".", max="a lot", current="?")
    assert memory_limits.tightest().holder == "this machine"


# ---- programs -------------------------------------------------------------------------------------------------------


def test_a_pool_that_the_container_can_never_hold_is_refused(
    machine: Machine, store_url: str, everything_off: None
) -> None:
    """1 GiB in a container of 256 MiB: it returned 0, and was killed later."""
    machine.v2("/")
    machine.group(".", max=str(256 * MIB))
    assert bm.initialize(store_url, 1, 0, bm.BmConfig()) == 0
    with pytest.raises(RuntimeError, match=f"{1 << 30} bytes was asked for, this process may have {256 * MIB} bytes"):
        bm.create(0, 1 << 30)
    assert "memory.max" in mf.get_last_err_msg()
    assert "raise the memory limit of the container" in mf.get_last_err_msg()
    with bm.create2(0, 128 * MIB, 1 << 30) as pool:
        assert pool.extend_local_mem(bm.BmMemType.HOST, 512 * MIB) == -2001
        assert pool.extend_local_mem(bm.BmMemType.HOST, 64 * MIB) == 0


def test_a_heap_beyond_the_container_is_refused(machine: Machine, store_url: str, everything_off: None) -> None:
    machine.v2("/")
    machine.group(".", max=str(256 * MIB))
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0
    with pytest.raises(RuntimeError, match=f"this process may have {256 * MIB} bytes"):
        shm.create(0, 1, 0, 1 << 30)


def test_what_is_not_left_is_told(machine: Machine) -> None:
    lines: list[str] = []
    mf.set_extern_logger(lambda level, text: lines.append(text))
    try:
        machine.v2("/")
        machine.group(".", max=str(256 * MIB), current=str(200 * MIB))
        segments.create(Tier.DRAM, 0, 32 * MIB, Placement()).close()
        assert not lines
        segments.create(Tier.DRAM, 0, 64 * MIB, Placement()).close()
    finally:
        mf.set_extern_logger(None)
    assert f"{56 * MIB} of the {256 * MIB} bytes that this process may have" in lines[0]


# ---- prefault -------------------------------------------------------------------------------------------------------


def allocated_bytes(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_prefault_allocates_everything_at_create(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_HUGE_PAGES", "off")
    monkeypatch.setattr(prefault, "STEP_BYTES", 3 * MIB)
    for chosen, expected in (("off", 0), ("on", 8 * MIB)):
        monkeypatch.setenv("MF_PREFAULT", chosen)
        segment = segments.create(Tier.DRAM, 0, 8 * MIB, Placement())
        assert allocated_bytes(segment.fd) == expected
        segment.close()


def test_prefault_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_PREFAULT", "on")
    monkeypatch.setattr("memfabric_hybrid.waiting_log.FIRST_S", 0.0)
    monkeypatch.setattr(prefault, "STEP_BYTES", 2 * MIB)
    lines: list[str] = []
    mf.set_extern_logger(lambda level, text: lines.append(text))
    try:
        segments.create(Tier.DRAM, 0, 8 * MIB, Placement()).close()
    finally:
        mf.set_extern_logger(None)
    assert f"of {8 * MIB} bytes" in lines[0]


def test_prefault_fails_at_create(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("MF_PREFAULT", "on")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MallocFailed, match=f"only 0 of {8 * MIB} bytes could be allocated"):
        segments.create(Tier.DRAM, 0, 8 * MIB, Placement())


def test_prefault_is_on_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_PREFAULT", "yes")
    with pytest.raises(InvalidParam, match="MF_PREFAULT is 'yes', expected on or off"):
        settings.prefault_wanted()
