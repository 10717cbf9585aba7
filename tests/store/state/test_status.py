"""What a store says of itself is what is in its tables."""

from __future__ import annotations

import json

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.keyspace import size_bytes
from memfabric_hybrid.store.state.status import status_of
from store.bench import Bench

FACT = b"where my memory is"


def test_empty_store(bench: Bench) -> None:
    assert status_of(bench.state) == {
        "incarnation": "one",
        "clusters": {},
        "sessions": 0,
        "connections": {"requests": 0, "events": 0, "not_greeted": 0},
        "keys": 0,
        "bytes": {"members": 0, "ephemeral": 0, "plain": 0},
        "revision": 0,
        "watches": 0,
    }


def test_members_and_strangers(bench: Bench) -> None:
    for session, rank in ((1, 0), (2, 3)):
        connection = bench.member(session)
        bench.say(connection, m.ClaimRank(1, "bm/ranks", 5, b"", rank, ()))
        bench.say(connection, m.Set(f"bm/7/h/{rank}", FACT, True))
        bench.say(connection, m.StartWatch(1, "bm/7/"))
    bench.say(11, m.StartWatch(2, "bm/ranks/"))
    bench.say(11, m.Set("mine", b"", True))
    bench.say(11, m.Set("everybody's", b"", False))
    bench.connect(99)
    said = status_of(bench.state)
    assert said == json.loads(json.dumps(said))
    assert said["clusters"] == {"bm": {"world_size": 5, "ranks": [0, 3]}}
    assert said["sessions"] == 2
    assert said["connections"] == {"requests": 2, "events": 2, "not_greeted": 1}
    assert said["keys"] == 6
    assert said["bytes"] == {
        "members": sum(size_bytes(f"bm/ranks/{rank}", b"") + size_bytes(f"bm/7/h/{rank}", FACT) for rank in (0, 3)),
        "ephemeral": size_bytes("mine", b""),
        "plain": size_bytes("everybody's", b""),
    }
    assert said["revision"] == 6
    assert said["watches"] == 3


def test_who_is_gone_is_not_counted(bench: Bench) -> None:
    connection = bench.member(1)
    bench.say(connection, m.ClaimRank(1, "shm/ranks", 2, b"", 1, ()))
    bench.say(connection, m.StartWatch(1, "shm/"))
    bench.leave(connection)
    bench.leave(10)
    assert {**status_of(bench.state), "revision": 0} == status_of(Bench().state)


def test_whoever_has_to_wait_for_the_first_one_is_not_greeted() -> None:
    bench = Bench()
    bench.state.first = bytes(16)
    bench.greet(10, 1, m.EVENTS)
    assert status_of(bench.state)["connections"] == {"requests": 0, "events": 0, "not_greeted": 1}
