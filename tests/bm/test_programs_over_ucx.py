"""Whole programs whose copies go by UCX: forks and exits in the middle of the traffic."""

from __future__ import annotations

from typing import Any

import pytest

from support.programs import besides_failures, run_python
from support.ucx_hosts import LOOPBACK, UCX_ONLY

PROGRAM = """
import ctypes, os, sys, threading, time
import memfabric_hybrid as mf
from memfabric_hybrid import bm
config = bm.BmConfig(start_store=False)
assert bm.initialize(sys.argv[1], 4, 0, config) == 0
pool = bm.create(0, 8 << 20, data_op_type=bm.BmDataOpType.HOST_RDMA)
assert pool.join() == 0
assert pool.route(0).name == "ucx"
own, copies = ctypes.create_string_buffer(4 << 20), []
def copy():
    place = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
    return pool.copy_data(ctypes.addressof(own), place, len(own), bm.BmCopyType.H2G)
def go_on():
    while copy() == 0:
        copies.append(0)
def wait_for_more():
    wanted, give_up_at = len(copies) + 3, time.monotonic() + 60
    while len(copies) < wanted:
        assert time.monotonic() < give_up_at
        time.sleep(0.002)
threading.Thread(target=go_on, daemon=True).start()
wait_for_more()
child = os.fork()
if child == 0:
    os._exit(0 if copy() == -2008 else 1)
assert os.waitpid(child, 0)[1] == 0
wait_for_more()
print("at the end")
"""


# Not os._exit: UCX over TCP is served in software, which ends its process when an initiator dies in the middle.
@pytest.mark.plain_store("it counts the lines of the log, and TLS has one more to say about data that is plain")
@pytest.mark.parametrize(("ending", "code"), [("", 0), ("sys.exit(3)", 3), ("pool.destroy()", 0)])
def test_a_program_may_fork_and_end_while_it_copies(store_url: str, workers: Any, ending: str, code: int) -> None:
    with workers(1, **LOOPBACK) as cluster:
        cluster.call(0, "take_part", store_url, dram=8 << 20, data_op_type=UCX_ONLY)
        for _ in range(2):
            done = run_python(PROGRAM + ending, store_url, timeout_s=90, **LOOPBACK)
            assert (done.returncode, done.stdout) == (code, "at the end\n"), done.stderr
            (warning,) = besides_failures(done.stderr).splitlines()
            assert "UCX over TCP is for trying UCX" in warning
            cluster.call(0, "wait_for_view", [0], timeout_s=30)
