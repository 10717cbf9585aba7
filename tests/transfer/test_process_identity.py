"""Who is meant by a process's number: not its successor, not the program it became, not its forked child."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from support import processes
from support.workers import Cluster

Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


REUSER = """
import ctypes, mmap, os, sys
target_pid, address, size = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
ready_read, ready_write = os.pipe()
stop_read, stop_write = os.pipe()
for attempt in range(2000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(target_pid - 1))
    child = os.fork()
    if child == 0:
        if os.getpid() != target_pid:
            os._exit(1)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
        place = libc.mmap(address, size, 3, flags, -1, 0)
        os.write(ready_write, b"y" if place == address else b"n")
        os.read(stop_read, 1)
        os._exit(0 if ctypes.string_at(address, size) == bytes(size) else 3)
    if child == target_pid:
        break
    os.waitpid(child, 0)
else:
    sys.exit("no process with that number")
print(os.read(ready_read, 1).decode(), flush=True)
sys.stdin.read()
os.write(stop_write, b".")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.needs_root("only root can choose the number of the next process")
def test_a_process_with_the_dead_ones_number_is_never_touched(engine: mf.TransferEngine, workers: Workers) -> None:
    """Another process gets the number of the killed target and has memory at the very address: it stays as it was."""
    own = ctypes.create_string_buffer(b"\x42" * 4096, 4096)
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        address = cluster.call(0, "open_memory", "m", 4096)
        pid = cluster.pid(0)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), address, 4096))
        cluster.kill(0)
        command = [sys.executable, "-c", REUSER, str(pid), str(address), "4096"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reuser:
            assert reuser.stdin is not None
            assert reuser.stdout is not None
            assert reuser.stdout.readline() == "y\n"
            os.kill(pid, 0)
            for _ in range(100):
                assert engine.transfer_sync_write(session, ctypes.addressof(own), address, 4096) == -2014
                assert engine.batch_transfer_sync_write(session, [ctypes.addressof(own)], [address], [4096]) == -2014
            reuser.stdin.close()
            assert reuser.stdout.readline().strip() == "0", "its memory was written"


def test_a_dead_process_is_known_without_its_connection(engine: mf.TransferEngine, workers: Workers) -> None:
    """A grandchild keeps the dead target's sockets open: the word that the kernel wiped still tells."""
    own = ctypes.create_string_buffer(8)
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        address = cluster.call(0, "open_memory", "m", 4096)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), address, 8))
        cluster.call(0, "fork_without_hooks", 5)
        os.kill(cluster.pid(0), signal.SIGKILL)
        deadline = time.monotonic() + 2
        while (code := engine.transfer_sync_write(session, ctypes.addressof(own), address, 8)) == 0:
            assert time.monotonic() < deadline
        assert code in (-2014, -2004), mf.get_last_err_msg()
        cluster.kill(0)


BECOMES_ANOTHER = """
import os, sys
import numpy as np
import memfabric_hybrid as mf
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
memory = np.zeros(4096, np.uint8)
assert engine.register(memory) == 0
print(engine.session_id, memory.ctypes.data, flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "60"])
"""


def test_a_process_that_becomes_another_program_is_never_touched(engine: mf.TransferEngine) -> None:
    """exec keeps the number and replaces the memory: the kernel has wiped the word before."""
    own = ctypes.create_string_buffer(8)
    command = [sys.executable, "-c", BECOMES_ANOTHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        assert target.stdin is not None
        assert target.stdout is not None
        session, address = target.stdout.readline().split()
        must(engine.transfer_sync_write(session, ctypes.addressof(own), int(address), 8))
        target.stdin.write("\n")
        target.stdin.flush()
        deadline = time.monotonic() + 20
        while "sleep" not in processes.command_line(target.pid).split()[:1]:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        for _ in range(10):
            assert engine.transfer_sync_write(session, ctypes.addressof(own), int(address), 8) == -2014
        target.kill()


FORKER = """
import ctypes, os, sys
import memfabric_hybrid as mf
engine, other = mf.TransferEngine(), mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0
assert other.initialize(None, "127.0.0.1:0", "Decode", 0) == 0
memory = other.trans_malloc(4096)
own = ctypes.create_string_buffer(b"a" * 8, 8)
session = other.session_id
assert engine.transfer_sync_write(session, ctypes.addressof(own), memory, 8) == 0
child = os.fork()
if child == 0:
    assert engine.transfer_sync_write(session, ctypes.addressof(own), memory, 8) == -2008, mf.get_last_err_msg()
    assert engine.register_memory(memory, 8) == -2008
    assert "forked" in mf.get_last_err_msg()
    with mf.TransferEngine() as fresh:
        assert fresh.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        own[:] = b"b" * 8
        assert fresh.transfer_sync_write(session, ctypes.addressof(own), memory, 8) == 0, mf.get_last_err_msg()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert ctypes.string_at(memory, 8) == b"b" * 8
assert engine.transfer_sync_write(session, ctypes.addressof(own), memory, 8) == 0, mf.get_last_err_msg()
assert ctypes.string_at(memory, 8) == b"a" * 8
print("well")
"""


def test_fork() -> None:
    """A forked child cannot use its parent's engine, can make its own, and harms nothing by ending."""
    done = subprocess.run([sys.executable, "-c", FORKER], capture_output=True, text=True, timeout=60)
    assert done.stdout == "well\n", done.stdout + done.stderr


def test_a_program_that_forgets_to_destroy_ends_cleanly() -> None:
    program = textwrap.dedent("""
        import memfabric_hybrid as mf
        engine = mf.TransferEngine()
        engine.set_peer_down_callback(print)
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0
        ticket = engine.submit_write(engine.session_id, 4096, 4096, 8)
        address = engine.trans_malloc(1 << 20)
        assert engine.send_probe(engine.session_id) == 0
    """)
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
