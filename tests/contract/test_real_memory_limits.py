"""Programs under a real memory limit: what it cannot hold is refused at `create`, and nobody is killed later."""

from __future__ import annotations

import pytest

from support.memory_group import MemoryGroup

MIB = 1 << 20
PROGRAM = """
import sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm
mf.check(bm.initialize(sys.argv[1], 2, 0, bm.BmConfig()))
"""
TOO_MUCH = (
    PROGRAM
    + """
try:
    bm.create(0, 1 << 30)
except RuntimeError as error:
    print(error)
with bm.create(0, 64 << 20) as pool:
    mf.check(pool.join())
    pool.array(0, 64 << 20, "u1")[:] = 1
    print("64 MiB were written")
"""
)
TRANSFER = """
import memfabric_hybrid as mf
with mf.TransferEngine() as engine:
    assert engine.trans_malloc(1 << 30) == 0
    print(mf.get_last_err_msg())
    assert engine.trans_malloc(64 << 20) != 0, mf.get_last_err_msg()
    print("64 MiB are there")
"""
TIGHT = (
    PROGRAM
    + """
kept = bytearray(b"x") * (160 << 20)
bm.create(0, 128 << 20).destroy()
"""
)
OWNER = (
    PROGRAM
    + """
pool = bm.create(0, 64 << 20)
mf.check(pool.join())
print("joined", flush=True)
sys.stdin.readline()
print("read", pool.array(0, 64 << 20, "u1").min(), flush=True)
sys.stdin.readline()
"""
)
WRITER = (
    PROGRAM
    + """
pool = bm.create(0, 64 << 20)
mf.check(pool.join())
pool.wait_for([0])
pool.array(0, 64 << 20, "u1")[:] = 7
print("written", flush=True)
sys.stdin.readline()
"""
)

pytestmark = pytest.mark.needs_root("makes control groups")


def test_a_pool_that_the_container_can_never_hold(store_url: str) -> None:
    """1 GiB in a group of 256 MiB: `create` returned, and the kernel killed the program when it wrote."""
    with MemoryGroup(256 * MIB) as group:
        with group.start(TOO_MUCH, store_url, MF_LOG_LEVEL="5") as program:
            said, _ = program.communicate(timeout=30)
        assert program.returncode == 0, said
        refusal, written = said.splitlines()
        assert f"{1 << 30} bytes was asked for, this process may have {256 * MIB} bytes" in refusal
        assert str(group.folder) in refusal
        assert "raise the memory limit of the container" in refusal
        assert written == "64 MiB were written"


def test_trans_malloc_of_what_the_container_can_never_hold() -> None:
    with MemoryGroup(256 * MIB) as group:
        with group.start(TRANSFER, MF_LOG_LEVEL="5") as program:
            said, _ = program.communicate(timeout=30)
        assert program.returncode == 0, said
        refusal, written = said.splitlines()
        assert f"{1 << 30} bytes were asked for, this process may have {256 * MIB} bytes in all" in refusal
        assert str(group.folder) in refusal
        assert written == "64 MiB are there"


def test_what_is_not_left_is_told(store_url: str) -> None:
    with MemoryGroup(256 * MIB) as group:
        with group.start(TIGHT, store_url) as program:
            said, _ = program.communicate(timeout=30)
        assert program.returncode == 0, said
        assert f"of the {256 * MIB} bytes that this process may have" in said


def test_prefaulted_memory_is_paid_at_create(store_url: str) -> None:
    with MemoryGroup(256 * MIB) as group:
        with group.start(OWNER, store_url, MF_PREFAULT="on") as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "joined\n"
            assert group.used_bytes() >= 64 * MIB
            owner.communicate("\n\n", timeout=30)
        assert owner.returncode == 0


def test_who_touches_memory_first_pays_for_it(store_url: str) -> None:
    """As the guide says: rank 0's memory, which rank 1 writes first, counts against rank 1's container."""
    with MemoryGroup(512 * MIB) as owners, MemoryGroup(512 * MIB) as writers:
        with owners.start(OWNER, store_url) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "joined\n"
            before = owners.used_bytes()
            with writers.start(WRITER, store_url) as writer:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "written\n"
                assert writers.used_bytes() >= 64 * MIB
                assert owners.used_bytes() - before < 32 * MIB
                writer.communicate("\n", timeout=30)
            said, _ = owner.communicate("\n\n", timeout=30)
        assert "read 7" in said
        assert (owner.returncode, writer.returncode) == (0, 0)
