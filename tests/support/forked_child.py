"""Forked children of a process that is busy with us: they have no part in what it has, and may have their own."""

from __future__ import annotations

import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm

ENDS_S = 20.0
STACKS_S = 0.5
CHILDRENS_ID = 2  # the pool of forked children
WELL, WRONG = 0, 3
NO_RANK = 0xFFFFFFFF


def run_in_child(what: Callable[[], None], tell: Callable[[str], object]) -> None:
    """Forks; the child does something and ends without a goodbye. AssertionError if it does not end well and in time.

    `tell` is called in the child with the traceback when something is wrong; it may use no locks.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
        child = os.fork()
    if child == 0:
        code = WRONG
        try:
            what()
            code = WELL
        except BaseException:
            tell(f"forked child {os.getpid()}: {traceback.format_exc()}")
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(_ended(child))
    assert code == WELL, f"the forked child {child} ended with {code}"


def _ended(child: int) -> int:
    give_up_at = time.monotonic() + ENDS_S
    while time.monotonic() < give_up_at:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGUSR1)  # workers of ours write their stacks
    time.sleep(STACKS_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"the forked child {child} did not end within {ENDS_S:g} s; its stacks are in the output")


def check_inherited(pool: bm.BigMemory | None, engine: mf.TransferEngine, heap: shm.ShareMemory | None) -> None:
    """In the child: all that belongs to the parent answers that it does."""
    data = np.zeros(64, np.uint8)
    own = data.ctypes.data
    answers = {
        "register_memory": engine.register_memory(own, 64),
        "transfer_sync_write": engine.transfer_sync_write("127.0.0.1:1", own, own, 64),
        "send_probe": engine.send_probe("127.0.0.1:1"),
    }
    if pool is not None:
        answers["copy_data"] = pool.copy_data(own, own, 64, bm.BmCopyType.AUTO)
        answers["copy_data_batch"] = pool.copy_data_batch([own], [own], [64], 1, bm.BmCopyType.AUTO)
        answers["pool wait"] = pool.wait()
        answers["join"] = pool.join()
        answers["leave"] = pool.leave()
    # The parent may have destroyed it while it forked.
    if heap is not None and "destroyed" not in repr(heap):
        answers["barrier"] = heap.barrier()
        answers["subgroup_barrier"] = heap.subgroup_barrier("forked", 1, 0)
        answers["atomic_alloc_value"] = heap.atomic_alloc_value(8)
    wrong = {name: code for name, code in answers.items() if code != -2008}
    assert not wrong, f"inherited objects answer {wrong}, expected -2008; the last error: {mf.get_last_err_msg()}"
    assert bm.bm_rank_id() == NO_RANK


def use_anew(store_url: str, config: bm.BmConfig, world_size: int, *, store_may_be_away: bool = False) -> None:
    """In the child: a membership, a pool and an engine of its own."""
    code = bm.initialize(store_url, world_size, 0, config)
    if code == -2004 and store_may_be_away:
        return
    assert code == 0, f"bm.initialize: {code}, {mf.get_last_err_msg()}"
    try:
        pool = bm.create2(CHILDRENS_ID, 2 << 20, 2 << 20)
    except RuntimeError:
        assert store_may_be_away, mf.get_last_err_msg()
        return
    code = pool.join()
    assert code == 0 or store_may_be_away, f"join: {code}, {mf.get_last_err_msg()}"
    if code == 0:
        _copy_there_and_back(pool)
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        assert engine.send_probe(engine.session_id) == 0, mf.get_last_err_msg()
    pool.destroy()
    bm.uninitialize()


def _copy_there_and_back(pool: bm.BigMemory) -> None:
    data, found = np.arange(4096, dtype=np.uint8), np.zeros(4096, np.uint8)
    place = pool.peer_rank_ptr(bm.bm_rank_id(), bm.BmMemType.HOST)
    assert pool.copy_data(data.ctypes.data, place, 4096, bm.BmCopyType.H2G) == 0, mf.get_last_err_msg()
    assert pool.copy_data(place, found.ctypes.data, 4096, bm.BmCopyType.G2H) == 0, mf.get_last_err_msg()
    assert (data == found).all()
