"""Members die and stop while the others copy: they are told so, quickly, and nothing else ever goes wrong.

`MF_KILL_ROUNDS` lengthens the loop of deaths. The slowest news of a death is printed.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from support import campaigns
from support.workers import Cluster

NOTICED_S = 2.0  # what a busy machine may need; the aim is 0.5
GONE, FINE = -2014, 0
UNDEFINED = -2012  # of a read whose source died meanwhile


def wait_for_code(cluster: Cluster, index: int, target: int, code: int, timeout_s: float) -> float:
    """When the copier of a worker began to get this code from that rank."""
    deadline = time.monotonic() + timeout_s
    while True:
        (seen,) = cluster.call(index, "copied")
        when, last = seen["changes"][target][-1] if seen["changes"][target] else (0.0, None)
        if last == code:
            return when
        assert time.monotonic() < deadline, f"worker {index} still gets {last} from rank {target}, expected {code}"
        time.sleep(0.01)


def check_copiers(cluster: Cluster, indices: Iterable[int]) -> None:
    for index in indices:
        for seen in cluster.call(index, "copied"):
            assert seen["wrong"] == []
            codes = {code for changes in seen["changes"].values() for _, code in changes}
            assert codes <= {FINE, GONE, UNDEFINED}


def check_no_more_threads(cluster: Cluster, index: int, before: list[str]) -> None:
    """Each of the two queues starts its thread with its first call, which may come after the first look.

    A joined thread of Python may live on for a moment in the kernel: it is waited for.
    """
    allowed = Counter(before) + Counter(["memfabric-bm-events", "memfabric-bm-reannounce"])
    deadline = time.monotonic() + 10
    while (threads := Counter(cluster.call(index, "footprint")["threads"])) - allowed:
        assert time.monotonic() < deadline, f"more threads than before: {threads - allowed}"
        time.sleep(0.01)


@pytest.mark.soak
def test_any_member_is_killed_again_and_again(store_url: str, workers: Any, rng: random.Random) -> None:
    """Four ranks copy to each other; three of them, the one that runs the store included, are killed in turn."""
    rounds = campaigns.length("MF_KILL_ROUNDS", 8)
    witness = 3  # lives through it all, and must not grow
    slowest_s = 0.0
    with workers(4) as cluster:
        ranks = [cluster.call(index, "take_part", store_url, 4) for index in range(3)]
        ranks.append(cluster.call(witness, "take_part", store_url, 4, settings={"start_store": False}))
        cluster.call_all("wait_for_view", [0, 1, 2, 3])
        footprint = cluster.call(witness, "footprint")
        for index in range(4):
            cluster.call(index, "start_copying", [rank for rank in range(4) if rank != ranks[index]], lane=index)
        for number in range(rounds):
            victim = 0 if number == 0 else rng.randrange(3)  # 0 runs the store at first
            survivors = [index for index in range(4) if index != victim]
            for index in survivors:
                wait_for_code(cluster, index, ranks[victim], FINE, 10)
            killed_at = time.monotonic()
            cluster.kill(victim)
            for index in survivors:
                noticed_s = wait_for_code(cluster, index, ranks[victim], GONE, 10) - killed_at
                assert noticed_s < NOTICED_S, f"round {number}: worker {index} was told after {noticed_s:.3f} s"
                slowest_s = max(slowest_s, noticed_s)
            check_copiers(cluster, survivors)
            cluster.start(victim)
            assert cluster.call(victim, "take_part", store_url, 4) == ranks[victim], "the rank is free again"
            cluster.call(victim, "wait_for_view", [0, 1, 2, 3])
            cluster.call(victim, "start_copying", [rank for rank in range(4) if rank != ranks[victim]], lane=victim)
        cluster.call_all("stop_copying")
        cluster.call_all("wait_for_view", [0, 1, 2, 3])
        after = cluster.call(witness, "footprint")
        assert after["memory files"] == footprint["memory files"]
        # The others ask it now, and it asks them when the store moved: at most one link more for each.
        assert after["descriptors"] <= footprint["descriptors"] + 3
        check_no_more_threads(cluster, witness, footprint["threads"])
    print(f"{rounds} deaths: the slowest survivor knew after {slowest_s * 1000:.1f} ms")


@pytest.mark.also_over_tls
def test_everybody_but_one_dies_at_once(store_url: str, workers: Any) -> None:
    with workers(6) as cluster:
        for index in range(6):
            cluster.call(index, "take_part", store_url, 6)
        for index in (0, 1, 2, 4, 5):
            cluster.kill(index)
        assert cluster.call(3, "wait_for_view", [3]) < NOTICED_S
        cluster.start(0)
        assert cluster.call(0, "take_part", store_url, 6) == 0
        cluster.call(3, "wait_for_view", [0, 3])


def test_death_during_join_of_others(store_url: str, workers: Any, rng: random.Random) -> None:
    with workers(6) as cluster:
        cluster.call(0, "take_part", store_url, 6)
        for _ in range(3):
            pending = [cluster.begin(index, "take_part", store_url, 6) for index in range(1, 6)]
            time.sleep(rng.random() * 0.05)
            doomed = rng.sample(range(1, 6), 2)
            for index in doomed:
                cluster.kill(index)
            living = [index for index in range(1, 6) if index not in doomed]
            ranks = sorted([0, *(pending[index - 1].result() for index in living)])
            cluster.call_all("wait_for_view", ranks, indices=[0, *living])
            cluster.call_all("uninitialize", indices=living)
            for index in doomed:
                cluster.start(index)
            cluster.call(0, "wait_for_view", [0])


def test_neighbour_that_answered_and_died_while_another_kept_us_waiting(store_url: str, workers: Any) -> None:
    """The joiner waits for a stopped neighbour; what it was told by one that is dead by then must not count."""
    with workers(4, MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S="1") as cluster:
        for index in range(3):
            cluster.call(index, "take_part", store_url, 4)
        assert cluster.call(3, "enter", store_url, 4) == (0, "")
        cluster.call(3, "create")
        cluster.kill(1, signal.SIGSTOP)
        answered = "exchange.answered"
        cluster.call(3, "hold_at", answered)
        cluster.call(3, "begin_join")
        assert cluster.call(3, "wait_until_held", answered)
        cluster.call(3, "let_pass_at", answered)
        assert cluster.call(3, "wait_until_held", answered)  # both of the living
        cluster.call(3, "release_at", answered)
        cluster.kill(2)
        cluster.call(3, "end_join")
        assert cluster.call(3, "view") == [0, 3]
        cluster.kill(1, signal.SIGCONT)
        cluster.call_all("wait_for_view", [0, 1, 3], indices=[0, 1, 3])


def test_stopped_member_is_noticed_and_comes_back(store_url: str, workers: Any) -> None:
    heartbeat_s = 1.0
    with workers(3, MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S=str(heartbeat_s)) as cluster:
        for index in range(3):
            assert cluster.call(index, "take_part", store_url, 3) == index
        for index in (0, 1):
            cluster.call(index, "start_copying", [rank for rank in range(3) if rank != index], lane=index)
        cluster.call(0, "record_events")
        for life in (1, 2):
            stopped_at = time.monotonic()
            cluster.kill(2, signal.SIGSTOP)
            for index in (0, 1):
                silent_s = wait_for_code(cluster, index, 2, GONE, 10) - stopped_at
                assert heartbeat_s * 0.5 < silent_s < heartbeat_s + NOTICED_S
            cluster.kill(2, signal.SIGCONT)
            continued_at = time.monotonic()
            for index in (0, 1):
                assert wait_for_code(cluster, index, 2, FINE, 10) - continued_at < NOTICED_S
            cluster.call_all("wait_for_view", [0, 1, 2])
            assert cluster.call(2, "write", 0, 0, b"whole") == (0, "")
            expected = [(2, "LEAVE_EVENT"), (2, "JOIN_EVENT")] * life
            assert cluster.call(0, "wait_for_events", len(expected)) == expected
        check_copiers(cluster, (0, 1))
        for index in (0, 1):
            (seen,) = cluster.call(index, "stop_copying")
            assert [code for _, code in seen["changes"][1 - index]] == [FINE], "the others never noticed anything"


def test_short_stop_is_not_noticed(store_url: str, workers: Any) -> None:
    with workers(2, MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S="3") as cluster:
        for index in range(2):
            cluster.call(index, "take_part", store_url, 2)
        cluster.call(0, "start_copying", [1], lane=0)
        cluster.kill(1, signal.SIGSTOP)
        time.sleep(0.5)
        cluster.kill(1, signal.SIGCONT)
        cluster.call_all("wait_for_view", [0, 1])
        (seen,) = cluster.call(0, "stop_copying")
        assert [code for _, code in seen["changes"][1]] == [FINE]


def test_newcomer_does_not_get_the_rank_of_a_stopped_member(store_url: str, workers: Any) -> None:
    with workers(3, MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S="0.5") as cluster:
        for index in range(2):
            cluster.call(index, "take_part", store_url, 3)
        cluster.kill(1, signal.SIGSTOP)
        cluster.call(0, "wait_for_view", [0])
        assert cluster.call(2, "take_part", store_url, 3) == 2
        cluster.kill(1, signal.SIGCONT)
        cluster.call_all("wait_for_view", [0, 1, 2])
