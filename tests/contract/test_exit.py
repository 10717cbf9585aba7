"""A program ends cleanly whatever its daemon threads are doing in calls of ours, and an interpreter that is not the
main one is told that it cannot have us."""

from __future__ import annotations

import sys
import textwrap
import time

import pytest

from support.campaigns import length
from support.programs import besides_failures, run_python

# Each is run over and over by a daemon thread while the program ends.
CALLS = {
    "copy": "pool.copy_data(plain, place, 1 << 20, 3)",
    "batch": "pool.copy_data_batch([plain, plain], [place, place + 65536], [65536, 65536], 2, 3)",
    "wait": "pool.copy_data(plain, place, 1 << 20, 3, 1); pool.wait()",
    "stream": "pool.copy_data(plain, place, 1 << 20, 3, 4, stream); stream.wait()",
    "write": "engine.transfer_sync_write(engine.session_id, plain, plain + (8 << 20), 1 << 20)",
    "transfers": "engine.batch_transfer_sync_read(engine.session_id, [plain], [plain + (8 << 20)], [1 << 20])",
    "register": "engine.register_memory(plain, 4096); engine.unregister_memory(plain)",
    "probe": "engine.send_probe(engine.session_id)",
    "barrier": "heap.barrier()",
    "gather": "heap.all_gather(b'1234')",
    "array": "pool.array(0, 1 << 20, 'u1').sum()",
}

PROGRAM = """
    import ctypes, sys, threading, time
    import memfabric_hybrid as mf
    from memfabric_hybrid import bm, shm
    config = bm.BmConfig()
    assert bm.initialize("tcp://127.0.0.1:0", 1, 0, config) == 0, mf.get_last_err_msg()
    pool = bm.create(0, 4 << 20)
    assert pool.join() == 0, mf.get_last_err_msg()
    place = pool.peer_rank_ptr(0, 3)
    kept = ctypes.create_string_buffer(16 << 20)
    plain = ctypes.addressof(kept)
    stream = mf.Stream()
    engine = mf.TransferEngine()
    assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
    assert engine.register_memory(plain, 16 << 20) == 0, mf.get_last_err_msg()
    assert shm.initialize("tcp://127.0.0.1:0", 1, 0, 0, shm.ShmConfig()) == 0, mf.get_last_err_msg()
    heap = shm.create(0, 1, 0, 2 << 20)
    begun = threading.Semaphore(0)

    def work():
        begun.release()
        while True:
            try:
                CALL
            except (RuntimeError, mf.errors.FabricError):  # the object was destroyed at exit
                return

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
        begun.acquire()
    print("ended", time.monotonic())
"""
ENDS_S = 8.0  # three capabilities have about one second each; the rest is for a machine that is busy


@pytest.mark.soak
@pytest.mark.parametrize("call", CALLS)
def test_exit_with_daemon_threads_in_our_calls(call: str, store_url: str) -> None:
    program = textwrap.dedent(PROGRAM).replace("CALL", CALLS[call]).replace("tcp://127.0.0.1:0", store_url)
    for _ in range(length("MF_EXIT_ROUNDS", 2)):
        ended = run_python(program)
        over = time.monotonic()
        said = besides_failures(ended.stderr)  # one thread unregisters what another has unregistered
        assert (ended.returncode, said) == (0, ""), ended
        word, at = ended.stdout.split()
        assert word == "ended", ended
        assert over - float(at) < ENDS_S, "between the program's last line and its end"


def test_exit_while_a_daemon_thread_runs_python_inside_our_call(store_url: str) -> None:
    """The search for a session is Python code below native code, and wants the interpreter all the time."""
    program = """
        import threading, time
        import memfabric_hybrid as mf
        from memfabric_hybrid.transfer.directory import Directory
        begun = threading.Semaphore(0)

        def find(directory, session):
            begun.release()
            while True:
                time.sleep(0)

        Directory.find = find
        engine = mf.TransferEngine()
        assert engine.initialize("STORE", "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        for session in ("nobody", "nobody else"):
            threading.Thread(target=engine.send_probe, args=[session], daemon=True).start()
            begun.acquire()
        print("ended")
    """
    ended = run_python(textwrap.dedent(program).replace("STORE", store_url))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", ""), ended


def test_import_in_a_sub_interpreter_is_refused() -> None:
    program = """
        try:
            import _interpreters as interpreters
            make, run = lambda: interpreters.create("legacy"), interpreters.exec
        except ImportError:
            import _xxsubinterpreters as interpreters
            make, run = lambda: interpreters.create(isolated=False), interpreters.run_string
        number = make()
        text = (
            "try:\\n"
            "    import memfabric_hybrid\\n"
            "except ImportError as refusal:\\n"
            "    print(refusal)\\n"
            "else:\\n"
            "    print('imported')\\n"
        )
        run(number, text)
        interpreters.destroy(number)
        import memfabric_hybrid
        print("still works here")
    """
    ended = run_python(textwrap.dedent(program))
    assert ended.returncode == 0, ended
    first, second = ended.stdout.splitlines()
    assert "main interpreter" in first or sys.version_info >= (3, 12), ended  # later ones refuse by themselves
    assert "imported" not in first
    assert second == "still works here"
