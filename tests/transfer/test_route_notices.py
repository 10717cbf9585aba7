"""A transfer that takes a slower way than it could says so, once for each memory, and moves all the same."""

from __future__ import annotations

from support.programs import run_python

PROGRAM = """
import ctypes, resource, threading
from pathlib import Path
import memfabric_hybrid as mf

MIB = 1 << 20
SIZE = 256 * MIB
said = []
heard = threading.Event()
mf.set_extern_logger(lambda level, text: (said.append(text), heard.set()))

def must(code):
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"

def routes():
    return {(route, operation) for route, operation, *_ in mf._native._traffic()}

target, initiator = mf.TransferEngine(), mf.TransferEngine()
must(target.initialize(None, "127.0.0.1:0", "Decode", 0))
must(initiator.initialize(None, "127.0.0.1:0", "Prefill", 0))
there = target.trans_malloc(SIZE)
own = ctypes.create_string_buffer(b"x" * MIB, MIB)
must(initiator.send_probe(target.session_id))
"""


def run(text: str) -> None:
    done = run_python(PROGRAM + text + 'target.destroy(); initiator.destroy(); print("well")\n')
    assert (done.stdout, done.stderr, done.returncode) == ("well\n", "", 0)


def test_memory_that_cannot_be_mapped() -> None:
    run("""
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + 64 * MIB, before[1]))
must(initiator.transfer_sync_write(target.session_id, ctypes.addressof(own), there, MIB))
must(initiator.transfer_sync_write(target.session_id, ctypes.addressof(own), there + MIB, MIB))
resource.setrlimit(resource.RLIMIT_AS, before)
assert heard.wait(30)
assert ctypes.string_at(there, MIB) == own.raw
assert len(said) == 1, said
assert target.session_id in said[0] and "cannot be mapped here" in said[0] and "slower" in said[0], said
assert "Cannot allocate memory" in said[0], said
assert routes() == {("peer_process", "write")}
""")


def test_memory_that_is_mapped_needs_no_word() -> None:
    run("""
must(initiator.transfer_sync_write(target.session_id, ctypes.addressof(own), there, MIB))
must(initiator.transfer_sync_read(target.session_id, ctypes.addressof(own), there, MIB))
assert not said, said
assert routes() == {("mapped", "write"), ("mapped", "read")}
""")
