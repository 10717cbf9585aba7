"""Two users on one machine, root and another one: whoever joins second learns why it cannot, and copies say it, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

import memfabric_hybrid as mf
from support import pool_worker
from support.pool_worker import MIB

pytestmark = pytest.mark.needs_root("only root can become another user")

NOBODY = 65534
MEMBER_AS_NOBODY = """
import encodings.ascii, encodings.idna, os, sys  # all that is needed later: the other user may not see these files
import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.store.server import server

mf.set_log_level(5)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
pool = bm.create(0, 2 << 20)
print(pool.join(), mf.get_last_err_msg(), flush=True)
sys.stdin.read()
"""


def member_as_nobody(store_url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MEMBER_AS_NOBODY, store_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_words(process: subprocess.Popen[str]) -> tuple[int, str]:
    """What its join returned, and why."""
    assert process.stdout is not None
    code, _, sentence = process.stdout.readline().rstrip("\n").partition(" ")
    return int(code), sentence


@pytest.mark.plain_store("the other user cannot read the certificates of the run")
def test_join_of_another_user_says_why_and_so_do_copies_to_it(store_url: str) -> None:
    assert pool_worker.take_part(store_url, 4, dram=2 * MIB) == 0
    with member_as_nobody(store_url) as other:
        assert first_words(other) == (
            -2014,
            "bm object 0: rank 0 refuses: its process belongs to user 0 and lets only that user and root in, not user "
            "65534; run both as the same user",
        )
        code, sentence = pool_worker.write(1, 0, b"x")
        assert code == -2014
        assert f"rank 1 cannot be reached: its process {other.pid} belongs to user 65534" in sentence
        assert "run both as the same user" in sentence
        other.communicate()


TWO_PLAIN_USERS = """
import ctypes, encodings.ascii, encodings.idna, numpy, os, sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.store.server import server

mf.set_log_level(5)
user = int(sys.argv[2])
os.setgroups([]); os.setgid(user); os.setuid(user)
mf.check(bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()))
pool = bm.create(0, 2 << 20)
print(pool.join(), mf.get_last_err_msg(), flush=True)
for _ in sys.stdin:
    try:
        pool.wait_for([1], timeout=0.1)
    except mf.errors.FabricError as error:
        print(int(error.code), error, flush=True)
    try:
        pool.put(b"x", 1)
    except mf.errors.FabricError as error:
        print(int(error.code), error, flush=True)
"""


@pytest.mark.plain_store("the other users cannot read the certificates of the run")
def test_of_two_plain_users_both_learn_why(store_url: str) -> None:
    """The second one sees at once whose process the first one is, and tells it nothing; the kernel does."""

    def member(user: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TWO_PLAIN_USERS, store_url, str(user)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with member(65533) as first:
        assert first_words(first) == (0, "")
        with member(65532) as second:
            code, sentence = first_words(second)
            assert code == -2014
            assert f"its process {first.pid} belongs to user 65533" in sentence
            assert first.stdin is not None
            first.stdin.write("1\n")
            first.stdin.flush()
            reason = f"rank 1 cannot be reached: its process {second.pid} belongs to user 65532, this one to user 65533"
            code, sentence = first_words(first)
            assert code == -2004
            assert reason in sentence
            assert "run both as the same user" in sentence
            code, sentence = first_words(first)
            assert code == -2014
            assert reason in sentence
            second.communicate()
        first.communicate()


@pytest.mark.plain_store("the other user cannot read the certificates of the run")
def test_root_that_comes_second_says_why_it_cannot_join(store_url: str) -> None:
    with member_as_nobody(store_url) as other:
        assert first_words(other) == (0, "")
        assert pool_worker.enter(store_url, 4) == (0, "")
        pool_worker.create(0)
        code, sentence = pool_worker.call("join")
        assert code == -2014
        assert f"rank 0 of this host cannot be asked: its process {other.pid} belongs to user 65534" in sentence
        assert "run both as the same user" in sentence
        other.communicate()


@pytest.mark.plain_store("the other user cannot read the certificates of the run")
def test_rank_is_usable_again_when_the_other_user_has_left_it(store_url: str) -> None:
    assert pool_worker.take_part(store_url, 4, dram=2 * MIB) == 0
    with member_as_nobody(store_url) as other:
        assert first_words(other)[0] == -2014
        other.communicate()
    from support.workers import Cluster

    with Cluster(1, "support.pool_worker") as cluster:
        assert cluster.call(0, "take_part", store_url, 4) == 1
        assert pool_worker.write(1, 0, b"x") == (0, "")
    assert mf.get_last_err_msg() == ""
