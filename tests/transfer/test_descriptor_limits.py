"""A process without descriptors: what it cannot do is refused with -2002 and a sentence, and works when it has some."""

from __future__ import annotations

from pathlib import Path

from support.programs import besides_failures, run_python

TESTS = Path(__file__).resolve().parent.parent

PROGRAM = """
import ctypes, os
import memfabric_hybrid as mf
from support.descriptor_limits import no_descriptors

def must(code):
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"

def refused(code):
    said = mf.get_and_clear_last_err_msg()
    assert code == -2002, (code, said)
    assert "Too many open files" in said, said
"""


def run_without_descriptors(text: str) -> None:
    """It must say that all is well. Each needs a process of its own: the limit holds for all of it."""
    done = run_python(PROGRAM + text + 'print("well")\n', PYTHONPATH=str(TESTS))
    assert (done.stdout, besides_failures(done.stderr), done.returncode) == ("well\n", "", 0)


def test_memory_that_cannot_be_looked_at_is_not_registered() -> None:
    """Neither accepted unseen nor called unreadable."""
    run_without_descriptors("""
memory = ctypes.create_string_buffer(1 << 20)
here = ctypes.addressof(memory)
with mf.TransferEngine() as engine:
    must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
    with no_descriptors():
        refused(engine.register_memory(here, len(memory)))
        refused(engine.batch_register_memory([here], [len(memory)]))
        must(engine.register_memory(here, 8))  # needs no look at more than its ends
    must(engine.unregister_memory(here))
    must(engine.register_memory(here, len(memory)))
    must(engine.transfer_sync_write(engine.session_id, here, here + 64, 64))
""")


def test_engine_without_descriptors_starts_when_there_are_some() -> None:
    run_without_descriptors("""
with mf.TransferEngine() as engine:
    with no_descriptors():
        refused(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
    must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
    with no_descriptors():
        assert engine.trans_malloc(4096) == 0
        assert "Too many open files" in mf.get_last_err_msg(), mf.get_last_err_msg()
    assert engine.trans_malloc(4096) != 0, mf.get_last_err_msg()
""")
