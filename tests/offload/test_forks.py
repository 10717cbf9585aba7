"""Forked children: the parent's memory is not theirs to hand out, stays what it is, and they can have their own."""

from __future__ import annotations

import pytest

from support.programs import besides_failures, run_python

PROGRAM = """
import ctypes, os, sys
import memfabric_hybrid as mf
from memfabric_hybrid import offload

def must(code):
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"

def config(**fields):
    return offload.OffloadConfig(alloc_size=4 << 20, init_timeout=20, **fields)

def check_inherited(block):
    assert offload.malloc(8) == 0 and "not initialised in this process" in mf.get_last_err_msg()
    assert offload.free(block) == -2008 and offload.get_dva(block) == 0
    assert offload.sparse_copy(0, 0, 0, 0, 0) == -2008
    assert ctypes.string_at(block, 8) == b"parental", "addresses stay memory"
    offload.uninitialize()
    assert ctypes.string_at(block, 8) == b"parental"

def finish(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
"""

LOCAL = """
import torch
must(offload.initialize(config()))
block = offload.malloc(100)
ctypes.memmove(block, b"parental", 8)
tensor = offload.empty(100, dtype=torch.uint8).fill_(5)
child = FORK
if child == 0:
    check_inherited(block)
    must(offload.initialize(config()))
    mine = offload.malloc(4 << 20)
    ctypes.memset(mine, 255, 4 << 20)
    assert ctypes.string_at(block, 8) == b"parental" and int(tensor.sum()) == 500
    del tensor
    own = offload.empty(100, dtype=torch.uint8).fill_(1)
    ctypes.memmove(block, b"children", 8)
    mf.uninitialize()
    assert int(own.sum()) == 100
    sys.exit(0)
finish(child)
assert ctypes.string_at(block, 8) == b"children" and int(tensor.sum()) == 500
place = tensor.data_ptr()
other = offload.empty(100, dtype=torch.uint8)
assert other.data_ptr() != place
must(offload.free(block))
"""

SHARED = """
shared = dict(scene=offload.SHARED, store_url=sys.argv[1], reserve_size=1 << 30)
must(offload.initialize(config(**shared)))
block = offload.malloc(100)
ctypes.memmove(block, b"parental", 8)
child = FORK
if child == 0:
    check_inherited(block)
    assert offload.initialize(config(**shared)) == -2006, "the rank is the parent's"
    must(offload.initialize(config()))
    ctypes.memset(offload.malloc(4 << 20), 255, 4 << 20)
    assert ctypes.string_at(block, 8) == b"parental"
    sys.exit(0)
finish(child)
must(offload.free(block))
assert offload.malloc(100) == block
"""


@pytest.mark.parametrize(
    ("text", "fork"),
    [(LOCAL, "os.fork()"), (LOCAL, "ctypes.PyDLL(None).fork()"), (SHARED, "os.fork()")],
    ids=["LOCAL, Python's", "LOCAL, a C library's", "SHARED, Python's"],
)
def test_a_forked_child(text: str, fork: str, store_url: str) -> None:
    """Python itself does not survive a C library's fork beside threads of its own, which SHARED has."""
    program = PROGRAM + text.replace("FORK", fork) + 'print("well")\n'
    done = run_python(program, store_url, timeout_s=100)
    assert (done.stdout, besides_failures(done.stderr), done.returncode) == ("well\n", "", 0)
