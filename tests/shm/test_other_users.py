"""Ranks of two users on one machine: `create` fails on both, soon, and says why."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memfabric_hybrid import shm
from support.threads import Beside

pytestmark = pytest.mark.needs_root("only root can become another user")

RANK_1_AS_NOBODY = """
import encodings.ascii, encodings.idna, os, sys  # all that is needed later: the other user may not see these files
import memfabric_hybrid as mf
from memfabric_hybrid import shm

mf.set_log_level(5)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert shm.initialize(sys.argv[1], 2, 1, 0, shm.ShmConfig()) == 0, mf.get_last_err_msg()
try:
    shm.create(0, 2, 1, 2 << 20)
except RuntimeError as error:
    print(error, flush=True)
sys.stdin.read()
"""


@pytest.mark.plain_store("the other user cannot read the certificates of the run")
@pytest.mark.own_store
def test_create_of_two_users_fails_on_both_and_says_why(store_url: str) -> None:
    assert shm.initialize(store_url, 2, 0, 0, shm.ShmConfig()) == 0
    creating = Beside(lambda: shm.create(0, 2, 0, 2 << 20))
    command = [sys.executable, "-c", RANK_1_AS_NOBODY, store_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        sentence = other.stdout.readline()
        with pytest.raises(RuntimeError, match="run both as the same user"):
            creating.result()
        other.communicate()
    assert "run both as the same user" in sentence
    shm.uninitialize()
