"""Who may attach where users have no numbers of their own: in a user namespace, everybody whom it does not know looks
like user 65534, and so does an engine that runs there without a number. Tested with real users and namespaces.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytestmark = [
    pytest.mark.needs_root("only root can start processes of other users"),
    pytest.mark.plain_store("the other users cannot read the certificates of the run"),
]

ROOT, NOBODY, SOME_USER, ANOTHER_USER = 0, 65534, 12345, 23456
# Everything is imported while it can be read. Users other than root may not be looked into after they were made, unless
# they say so.
BECOME = """
import ctypes, os, sys
import memfabric_hybrid as mf
mf.TransferEngine().destroy()
user, may_be_looked_into = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
os.setgroups([]); os.setgid(user); os.setuid(user)
assert libc.prctl(4, may_be_looked_into, 0, 0, 0) == 0  # PR_SET_DUMPABLE
"""
GO_APART = """
assert libc.unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())  # CLONE_NEWUSER; it maps nobody
assert os.geteuid() == 65534
"""
TARGET = """
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
print(engine.session_id, flush=True)
sys.stdin.read()
"""
INITIATOR = """
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
print(engine.send_probe(sys.argv[3]), mf.get_last_err_msg())
"""
PAIR = """
read_end, write_end = os.pipe()
if os.fork() == 0:
    sys.argv[3] = os.read(read_end, 100).decode()
    INITIATOR
    sys.stdout.flush()
    os._exit(0)
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
os.write(write_end, engine.session_id.encode())
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
engine.destroy()
"""


@contextmanager
def target(user: int, *, apart: bool) -> Iterator[str]:
    """The session of an engine of that user; `apart`: in a user namespace of its own."""
    program = BECOME + (GO_APART if apart else "") + TARGET
    command = [sys.executable, "-c", program, str(user), "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        try:
            yield started.stdout.readline().strip()
        finally:
            started.stdin.close()


def write(session: str, user: int, *, may_be_looked_into: bool = True) -> str:
    """What `send_probe` of a process of that user says: its code and, if it is not 0, why."""
    return run(BECOME + INITIATOR, user, may_be_looked_into, session)


def run(program: str, user: int, may_be_looked_into: bool, session: str = "") -> str:
    command = [sys.executable, "-c", program, str(user), str(int(may_be_looked_into)), session]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def is_refused(said: str) -> bool:
    return said.startswith("-2014 ") and "lets only that user and root in" in said


def test_strangers_who_look_like_our_user_are_refused() -> None:
    with target(SOME_USER, apart=True) as session:
        assert is_refused(write(session, ANOTHER_USER))
        assert is_refused(write(session, NOBODY))
        assert is_refused(write(session, ANOTHER_USER, may_be_looked_into=False))


def test_processes_of_our_own_namespace_are_let_in() -> None:
    """They have no number either, but the kernel lets us look into them, as into no stranger."""
    pair = BECOME + GO_APART + PAIR.replace("INITIATOR", INITIATOR.strip().replace("\n", "\n    "))
    assert run(pair, SOME_USER, may_be_looked_into=True) == "0"


def test_user_65534_of_the_whole_machine_is_a_user_as_any_other() -> None:
    """Here nobody else can look like it, so nobody has to be looked into."""
    with target(NOBODY, apart=False) as session:
        assert write(session, NOBODY, may_be_looked_into=False) == "0"
        assert write(session, ROOT) == "0"
        assert is_refused(write(session, SOME_USER))


def test_other_users_of_the_whole_machine() -> None:
    with target(SOME_USER, apart=False) as session:
        assert write(session, SOME_USER, may_be_looked_into=False) == "0"
        assert write(session, ROOT) == "0"
        assert is_refused(write(session, NOBODY))
