"""What ranks publish, as the store shows it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.address_space.join_fact import DataPlace, JoinFact
from memfabric_hybrid.membership.roster import Stamp
from memfabric_hybrid.store import WatchUpdate

FACT = JoinFact(
    11, 2, "host", 4711, 1 << 21, 0, "exchange", b"secret",
    1 << 21, 0, "tag", 1, DataPlace("10.0.0.1:4711", b"id", b"data secret"),
)  # fmt: skip


HOST = join_fact.host_key(FACT.host)


def update(host: str = HOST, **entries: bytes | None) -> WatchUpdate:
    return WatchUpdate(False, "life", 1, {f"bm/7/{host}/{name}": value for name, value in entries.items()})


def test_facts_survive_the_store() -> None:
    assert join_fact.decode(update(**{"3": join_fact.encode(FACT), "4": None})) == ({3: FACT}, [(HOST, 4)])
    assert FACT.stamp == Stamp(11, 2)


def test_a_fact_is_published_under_its_host_and_rank() -> None:
    assert join_fact.key("bm/7", FACT.host, 3) == f"bm/7/{HOST}/3"
    assert join_fact.key("bm/7", FACT.host, 3).startswith(join_fact.prefix("bm/7", HOST))
    assert join_fact.prefix("bm/7", HOST).startswith(join_fact.prefix("bm/7"))


def test_hosts_have_short_names_without_slashes() -> None:
    names = [join_fact.host_key(host) for host in ("host", "another/host", "ünïcode", "x" * 1000)]
    assert len(set(names)) == 4
    assert all(re.fullmatch("[0-9a-f]{12}", name) for name in names)


def test_a_fact_in_the_place_of_another_host_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert join_fact.decode(update("123456789abc", **{"3": join_fact.encode(FACT)})) == ({}, [])
    assert f"bm/7/123456789abc/3', which no rank has written: its host is {HOST}" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("x", join_fact.encode(FACT)), ("3", b"\xc1"), ("3", b"")])
def test_what_no_rank_has_written_is_left_out(name: str, value: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert join_fact.decode(update(**{name: value, "4": None})) == ({}, [(HOST, 4)])
    assert f"bm/7/{HOST}/{name}" in capsys.readouterr().err


def test_threads_that_decode_their_first_fact_together() -> None:
    """msgspec looks at a type when it is first needed, and crashes when two threads do so at a time."""
    code = """if True:
        import os, sys, threading
        from memfabric_hybrid.address_space import join_fact as jf
        from memfabric_hybrid.store import WatchUpdate
        data = jf.DataPlace("10.0.0.1:4711", b"id", b"secret")
        fact = jf.JoinFact(11, 2, "host", 4711, 1, 0, "exchange", b"secret", 1, 0, "tag", 1, data)
        update = WatchUpdate(False, "life", 1, {jf.key("bm/7", "host", 3): jf.encode(fact)})
        sys.setswitchinterval(1e-6)
        for _ in range(50):  # one in three crashed
            child = os.fork()
            if child == 0:
                together = threading.Barrier(4)
                threads = [threading.Thread(target=lambda: (together.wait(), jf.decode(update))) for _ in range(4)]
                for thread in threads: thread.start()
                for thread in threads: thread.join()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
