"""`trans_malloc` takes addresses as they are needed, and names the limit that stands in its way."""

from __future__ import annotations

import ctypes
import itertools

import memfabric_hybrid as mf
from support.programs import run_python

MIB = 1 << 20

LIMITED = """
import ctypes, re, resource
import memfabric_hybrid as mf

def must(code):
    assert code == 0, mf.get_last_err_msg()

engine = mf.TransferEngine()
must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
with open("/proc/self/status") as status:
    mapped = int(re.search(r"VmSize:\\s+(\\d+) kB", status.read())[1]) << 10
limit = mapped + (LEFT << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
BODY
print("well")
"""


def run_limited(left_mib: int, body: str) -> None:
    """A program that may map so much more, as under `ulimit -v`."""
    done = run_python(LIMITED.replace("LEFT", str(left_mib)).replace("BODY", body))
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr


def test_little_memory_needs_little_of_the_address_space() -> None:
    run_limited(512, """
one, two = engine.trans_malloc(1 << 20), engine.trans_malloc(100 << 20)
assert one and two, mf.get_last_err_msg()
ctypes.memset(one, 7, 1 << 20)
must(engine.transfer_sync_write(engine.session_id, one, two, 1 << 20))
assert ctypes.string_at(two, 1 << 20) == bytes([7]) * (1 << 20)
""")  # fmt: skip


def test_a_step_that_does_not_fit_is_a_smaller_one() -> None:
    """64 MiB are a step; 40 are left."""
    run_limited(40, """
assert engine.trans_malloc(8 << 20), mf.get_last_err_msg()
assert mf.get_last_err_msg() == ""
""")  # fmt: skip


def test_the_limit_in_the_way_is_named() -> None:
    run_limited(512, """
assert engine.trans_malloc(2 << 30) == 0
assert f"this process may map are limited to {limit} (raise ulimit -v)" in mf.get_last_err_msg(), mf.get_last_err_msg()
assert str(2 << 30) in mf.get_last_err_msg()
assert engine.trans_malloc(1 << 20), mf.get_last_err_msg()
""")  # fmt: skip


def test_many_steps_are_as_one(engine: mf.TransferEngine) -> None:
    """Allocations of several steps are moved, freed and taken again; none overlaps another."""
    sizes = [4096, 60 * MIB, 100 * MIB, 300 * MIB, 8192, 40 * MIB]
    places = [engine.trans_malloc(size) for size in sizes]
    assert all(places), mf.get_last_err_msg()
    ranges = sorted(zip(places, sizes, strict=True))
    assert all(one + size <= other for (one, size), (other, _) in itertools.pairwise(ranges))
    assert all(place % (2 * MIB if size >= 2 * MIB else 4096) == 0 for place, size in ranges)
    for number, place in enumerate(places):
        ctypes.memset(place, number + 1, 4096)
    with mf.TransferEngine() as peer:
        assert peer.initialize(None, "127.0.0.1:0", "Decode", 0) == 0
        back = ctypes.create_string_buffer(4096)
        for number, place in enumerate(places):
            code = peer.transfer_sync_read(engine.session_id, ctypes.addressof(back), place, 4096)
            assert code == 0, mf.get_last_err_msg()
            assert back.raw == bytes([number + 1]) * 4096
    for place in places:
        assert engine.trans_free(place) == 0
        assert engine.trans_free(place) == -2007
    again = engine.trans_malloc(60 * MIB)
    assert again in range(min(places), max(places) + 1), "what was freed is used again"
    assert ctypes.string_at(again, 4096) == bytes(4096)


def test_peers_map_every_step_once(engine: mf.TransferEngine) -> None:
    """Steps double: an engine with much memory is a few mappings for a peer, not one for each allocation."""
    before = shared_mappings()
    places = [engine.trans_malloc(8 * MIB) for _ in range(64)]
    assert all(places)
    assert shared_mappings() - before <= 4


def shared_mappings() -> int:
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum("memfabric-arena" in line for line in maps)
