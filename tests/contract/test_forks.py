"""Forked children: what they inherit is refused with -2008, what they make is their own, and nothing hangs or crashes.

`os.fork` runs Python's hooks; a C library that forks runs none. Python itself survives such a fork only if none of its
threads waited for the GIL, so where the library has Python threads, its hooks are left out of an `os.fork` instead.
"""

from __future__ import annotations

import pytest

from support.etcd import EtcdCluster
from support.programs import besides_failures, run_python
from support.workers import Cluster

SEEN, UNSEEN, BY_C = "seen", "unseen", "by C"

HOOKLESS = """
import concurrent.futures.thread, logging, os, random
register, os.register_at_fork = os.register_at_fork, lambda **hooks: None
import memfabric_hybrid
os.register_at_fork = register
"""

PROGRAM = """
import ctypes, os, sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
from memfabric_hybrid.bm import BmCopyType, BmMemType

def must(code):
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"

def finish(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
"""


def run_forking(text: str, kind: str, *arguments: str) -> None:
    """`FORK` in the program is a fork of that kind; it must say that all is well."""
    fork = "ctypes.PyDLL(None).fork()" if kind == BY_C else "os.fork()"
    program = (HOOKLESS if kind == UNSEEN else "") + PROGRAM + text.replace("FORK", fork) + 'print("well")\n'
    done = run_python(program, *arguments)
    assert (done.stdout, besides_failures(done.stderr), done.returncode) == ("well\n", "", 0)


POOL = """
must(bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()))
pool = bm.create(0, 1 << 20)
must(pool.join())
array = pool.array(0, 64, "u1")
array[:] = 7
child = FORK
if child == 0:
    source = ctypes.create_string_buffer(64)
    own = pool.peer_rank_ptr(0, BmMemType.HOST)
    assert pool.copy_data(ctypes.addressof(source), own or 4096, 8, BmCopyType.H2G) == -2008
    assert pool.join() == -2008 and "forked" in mf.get_last_err_msg(), mf.get_last_err_msg()
    assert pool.leave() == -2008 and pool.wait() == -2008
    assert array.sum() == 7 * 64, "an inherited array shows the memory that it is on"
    must(bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()))
    mine = bm.create(0, 1 << 20)
    assert mine is not None, mf.get_last_err_msg()
    assert array.sum() == 7 * 64
    must(mine.join())
    assert array.sum() == 7 * 64
    assert mine.array(0, 64, "u1").sum() == 7 * 64
    mine.destroy()
    assert array.sum() == 7 * 64
    array[:] = 8
    del array
    again = bm.create(0, 1 << 20)
    assert again is not None, mf.get_last_err_msg()
    bm.uninitialize()
    sys.exit(0)
finish(child)
assert array.sum() in (7 * 64, 8 * 64)
must(pool.leave())
must(pool.join())
"""

HEAP = """
must(shm.initialize(sys.argv[1], 1, 0, 0, shm.ShmConfig()))
heap = shm.create(0, 1, 0, 1 << 21)
must(heap.barrier())
must(heap.subgroup_barrier("one", 1, 0))
value = heap.atomic_alloc_value(4)
child = FORK
if child == 0:
    calls = {
        "barrier": lambda: heap.barrier(),
        "subgroup_barrier": lambda: heap.subgroup_barrier("one", 1, 0),
        "another subgroup": lambda: heap.subgroup_barrier("two", 1, 0),
        "set_context": lambda: heap.set_context(b"x"),
        "topology_can_reach": lambda: heap.topology_can_reach(0, 0),
        "atomic_alloc_value": lambda: heap.atomic_alloc_value(4),
        "atomic_release_value": lambda: heap.atomic_release_value(value),
        "register_exit": lambda: heap.register_exit(print),
        "global_exit": lambda: heap.global_exit(0),
        "destroy": lambda: heap.destroy(),
    }
    for name, call in calls.items():
        mf.get_and_clear_last_err_msg()
        code = call()
        assert code == -2008, (name, code, mf.get_last_err_msg())
        assert "forked" in mf.get_last_err_msg(), (name, mf.get_last_err_msg())
    for call in (lambda: heap.all_gather(b"x"), lambda: heap.subgroup_all_gather("one", 1, 0, b"x"),
                 lambda: heap.array(0, 8, "u1")):
        mf.get_and_clear_last_err_msg()
        try:
            call()
        except (RuntimeError, ValueError, mf.errors.FabricError) as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("no error")
    assert (heap.gva, heap.symmetric_size, heap.rank_size, heap.reach(0)) == (0, 0, 0, 0)
    assert "of the parent" in repr(heap)
    shm.uninitialize()
    sys.exit(0)
finish(child)
must(heap.barrier())
assert heap.gva != 0
must(heap.atomic_release_value(value))
"""

ENGINE = """
engine, other = mf.TransferEngine(), mf.TransferEngine()
must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
must(other.initialize(None, "127.0.0.1:0", "Decode", 0))
memory = other.trans_malloc(4096)
own = ctypes.create_string_buffer(b"a" * 8, 8)
session = other.session_id
must(engine.transfer_sync_write(session, ctypes.addressof(own), memory, 8))
must(engine.submit_write(session, ctypes.addressof(own), memory, 8).wait(10))
stream = mf.Stream()
child = FORK
if child == 0:
    own[:] = b"b" * 8
    here = ctypes.addressof(own)
    assert engine.transfer_sync_write(session, here, memory, 8) == -2008, mf.get_last_err_msg()
    assert "forked" in mf.get_last_err_msg()
    assert engine.batch_transfer_sync_write(session, [here] * 2, [memory] * 2, [4] * 2) == -2008
    assert engine.transfer_sync_read(session, here, memory, 8) == -2008
    assert engine.register_memory(here, 8) == -2008
    assert engine.unregister_memory(memory) == -2008
    assert engine.send_probe(session) == -2008
    assert engine.trans_malloc(4096) == 0
    assert engine.trans_free(memory) == -2008
    assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == -2008
    assert engine.session_id == ""
    engine.set_peer_down_callback(None)
    engine.destroy()
    del engine, other
    with mf.TransferEngine() as fresh:
        must(fresh.initialize(None, "127.0.0.1:0", "Prefill", 0))
        own[:] = b"c" * 8
        must(fresh.transfer_sync_write(session, here, memory, 8))
    mf.uninitialize()
    sys.exit(0)
finish(child)
assert ctypes.string_at(memory, 8) == b"c" * 8
must(engine.transfer_sync_write(session, ctypes.addressof(own), memory, 8))
assert ctypes.string_at(memory, 8) == b"a" * 8
"""


@pytest.mark.parametrize("kind", [SEEN, UNSEEN])
@pytest.mark.parametrize("capability", [POOL, HEAP], ids=["pool", "heap"])
def test_a_child_has_no_part_in_what_it_inherits(capability: str, kind: str, store_url: str) -> None:
    run_forking(capability, kind, store_url)


@pytest.mark.parametrize("kind", [SEEN, UNSEEN, BY_C])
def test_a_child_cannot_use_its_parents_engine(kind: str) -> None:
    run_forking(ENGINE, kind)


FORKING_RANK = """
import os
import memfabric_hybrid as mf
from support import forked_child
from support.heap_worker import *

def refused(call):
    mf.get_and_clear_last_err_msg()
    try:
        assert call() == -2008
    except RuntimeError as error:
        assert "forked" in str(error), error
    assert "forked" in mf.get_last_err_msg(), mf.get_last_err_msg()

def try_to_take_part_in_a_child():
    heap = heaps[0]
    def child():
        for call in (
            heap.barrier,
            lambda: heap.subgroup_barrier("pair", 2, rank()),
            lambda: heap.all_gather(b"from a child"),
            lambda: heap.subgroup_all_gather("pair", 2, rank(), b"from a child"),
            lambda: heap.atomic_alloc_value(1),
        ):
            refused(call)
    forked_child.run_in_child(child, lambda text: os.write(2, text.encode()))
"""


def test_a_child_is_not_taken_for_its_parent_by_the_other_ranks(store_url: str) -> None:
    """They share pages with it: what it tries there must not end anybody's wait."""
    with Cluster(2, script=FORKING_RANK) as cluster:
        cluster.call_all("take_part", store_url, 2)
        rounds: list[tuple[str, tuple[object, ...], tuple[object, ...]]] = [
            ("barrier", (), ()),
            ("subgroup_barrier", ("pair", 2, 0), ("pair", 2, 1)),
            ("all_gather", (b"zero",), (b"one!",)),
            ("subgroup_all_gather", ("pair", 2, 0, b"zero"), ("pair", 2, 1, b"one!")),
        ]
        for method, own, others in rounds:
            waiting = cluster.begin(1, "call", method, *others)
            cluster.call(0, "try_to_take_part_in_a_child")
            assert not waiting.ready(), f"{method} was ended by a child"
            expected = b"zeroone!" if "gather" in method else 0
            assert cluster.call(0, "call", method, *own)[0] == expected
            assert waiting.result()[0] == expected
        assert cluster.call(1, "call", "atomic_alloc_value", 1) == (0, "")
        cluster.call_all("uninitialize")


LOCKS = {
    "closing": "client._dialer.closing._cond",
    "hook": "client._dialer._hook_lock",
    "channel": "client._channel.state.changed",
    "watch_callbacks": "client._channel.watch_callbacks._lock",
    "hosting": "hosting._lock",
    "store_users": "store_users._lock",
    "rank_proof": "runtime.current().node.member.proof._lock",
}
LOCKS_ON_ETCD = {
    "state": "client._session.state.changed",
    "watch_callbacks": "client._session.watch_callbacks._lock",
    "feed": "client._session.feed._lock",
    "store_users": "store_users._lock",
}
HOLDING = """
from memfabric_hybrid.bm import runtime
from memfabric_hybrid.store import store_users
from memfabric_hybrid.store.server import hosting
import threading

must(bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()))
client = runtime.current().node.member.store
held, release = threading.Event(), threading.Event()

def hold():
    with LOCK:
        held.set()
        release.wait()

holder = threading.Thread(target=hold)
holder.start()
held.wait()
child = FORK
if child == 0:
    assert bm.bm_rank_id() == 4294967295
    client.close()
    must(bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()))
    bm.uninitialize()
    os._exit(0)
status = os.waitpid(child, 0)[1]
release.set()
holder.join()
assert os.waitstatus_to_exitcode(status) == 0
"""


@pytest.mark.parametrize("kind", [SEEN, UNSEEN])
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_that_another_thread_holds_at_the_fork_stops_nobody(store_url: str, lock: str, kind: str) -> None:
    run_forking(HOLDING.replace("LOCK", LOCKS[lock]), kind, store_url)


@pytest.mark.parametrize("kind", [SEEN, UNSEEN])
@pytest.mark.parametrize("lock", LOCKS_ON_ETCD)
def test_a_lock_of_an_etcd_store_stops_nobody_either(shared_etcd: EtcdCluster, lock: str, kind: str) -> None:
    run_forking(HOLDING.replace("LOCK", LOCKS_ON_ETCD[lock]), kind, shared_etcd.url())
