"""The campaign across hosts: the driver starts everybody, makes and ends faults, and looks at what was seen."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from host_faults.faults import KILLED, STORE_HOST, Round
from host_faults.member import Event
from host_faults.plan import (
    HEARTBEAT_S,
    IDLE_S,
    IDLE_SHARE,
    KINDS,
    LATE_S,
    OPERATION_TIMEOUT_S,
    PORT,
    RANKS,
    RECOVERY_S,
    TRANSFER_TIMEOUT_S,
    Place,
    host_of,
    ranks_on,
)
from memfabric_hybrid.clock import Deadline
from support.hosts import Network
from support.workers import Cluster

STORE = RANKS  # the worker that runs the store
MEMBERS = range(RANKS)
TOWARDS_THE_LOST = {-2004, -2012, -2014}
LONGEST_CALL_S = 2 * max(OPERATION_TIMEOUT_S, TRANSFER_TIMEOUT_S, HEARTBEAT_S) + LATE_S  # a write and a read


@dataclass
class Totals:
    """For the report."""

    rounds: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)  # rounds of writing and reading back that worked
    codes: Counter[str] = field(default_factory=Counter)  # towards the lost
    healthy_longest_s: float = 0.0
    healthy_longest: str = ""
    failing_longest_s: float = 0.0
    recovery_longest_s: float = 0.0
    idle_most: float = 0.0  # share of a core

    def __str__(self) -> str:
        return (
            f"rounds {dict(self.rounds)}\nmoved {dict(self.moved)}\ncodes {dict(self.codes)}\n"
            f"longest call: between the healthy {self.healthy_longest_s:.2f} s ({self.healthy_longest}), "
            f"towards the lost {self.failing_longest_s:.2f} s; "
            f"recovery at most {self.recovery_longest_s:.1f} s after the fault's end; "
            f"idle members use at most {self.idle_most:.2%} of a core"
        )


class Driver:
    """Used by one thread. `cluster`: the members in order of rank, and the store."""

    def __init__(self, network: Network, cluster: Cluster, seed: int) -> None:
        self.totals = Totals()
        self._network = network
        self._cluster = cluster
        self._seed = seed
        self._url = f"tcp://{network.hosts[STORE_HOST].address}:{PORT}"
        self._places: dict[int, Place] = {}

    def start(self) -> None:
        self._cluster.call(STORE, "serve_store", self._url)
        self._enter(MEMBERS)
        self._cluster.call_all("create_heap", indices=MEMBERS)
        self._begin(MEMBERS)
        self._wait_for_progress()

    def _enter(self, ranks: range) -> None:
        calls = [
            self._cluster.begin(
                rank, "enter", rank, self._url, self._network.hosts[host_of(rank)].address, f"{self._seed}"
            )
            for rank in ranks
        ]
        self._places.update(zip(ranks, (call.result(60) for call in calls), strict=True))

    def _begin(self, ranks: range) -> None:
        self._cluster.call_all("begin", self._places, indices=ranks)

    def stop(self) -> None:
        self._cluster.call_all("rest", indices=MEMBERS, timeout_s=60)
        self._barriers()
        self._cluster.call_all("leave", indices=MEMBERS)

    # ---- a round ----------------------------------------------------------------------------------------------------

    def run(self, round_: Round) -> None:
        """Everybody works before, during and after it; then all rest."""
        self.totals.rounds[round_.fault.name] += 1
        round_.fault.begin(self._network, self._cluster, round_.host)
        time.sleep(round_.lasts_s)  # how long it lasts is a part of the fault
        round_.fault.end(self._network, self._cluster, round_.host)
        healed_at = time.monotonic()
        lost = ranks_on(round_.host) if round_.fault is KILLED else range(0)
        if round_.fault is KILLED:
            self._replace(round_, lost)
        self._wait_for_progress()
        self.totals.recovery_longest_s = max(self.totals.recovery_longest_s, time.monotonic() - healed_at)
        self._judge(round_, MEMBERS)
        assert self._barriers() == [(0, "")] * RANKS, "a heap that is whole again meets"
        complaints = [text for found in self._cluster.call_all("foreign_bytes", indices=MEMBERS) for text in found]
        assert not complaints, complaints
        self._expect_idle()
        self._begin(MEMBERS)
        self._wait_for_progress()

    def _replace(self, round_: Round, lost: range) -> None:
        """Successors of the dead enter; the heap is made anew by all, as its error says."""
        self._enter(lost)
        survivors = [rank for rank in MEMBERS if rank not in lost]
        self._judge(round_, survivors)
        self._cluster.call_all("destroy_heap", indices=survivors)
        self._cluster.call_all("create_heap", indices=MEMBERS)
        self._begin(MEMBERS)

    def _judge(self, round_: Round, ranks: range | list[int]) -> None:
        """Ends the work and looks at everything that happened since it began."""
        for initiator, seen in zip(ranks, self._cluster.call_all("rest", indices=ranks, timeout_s=60), strict=True):
            for target, (rounds, longest_s, events) in seen.items():
                may_fail = round_.may_fail(initiator, target)
                for event in events:
                    self._judge_event(round_, initiator, event, may_fail)
                for kind in KINDS:
                    self.totals.moved[kind] += rounds[kind]
                if host_of(initiator) != round_.host != host_of(target):
                    self._note_healthy(max(longest_s.values()), f"{round_}, rank {initiator} to {target}: {longest_s}")
        assert self.totals.healthy_longest_s < LONGEST_CALL_S

    def _note_healthy(self, longest_s: float, where: str) -> None:
        if longest_s > self.totals.healthy_longest_s:
            self.totals.healthy_longest_s, self.totals.healthy_longest = longest_s, where

    def _judge_event(self, round_: Round, initiator: int, event: Event, may_fail: bool) -> None:
        what = f"{round_}: rank {initiator}, {event}"
        assert event.code != 1, f"{what}: wrong bytes"
        assert may_fail, f"{what}: who is well was disturbed"
        assert event.code in TOWARDS_THE_LOST, what
        assert event.sentence, f"{what}: no sentence"
        if host_of(initiator) != round_.host:  # a stopped one's clock goes on
            assert event.took_s < LONGEST_CALL_S, f"{what}: too late"
            self.totals.failing_longest_s = max(self.totals.failing_longest_s, event.took_s)
        self.totals.codes[f"{round_.fault.name}: {event.kind} {event.code}"] += 1

    def _wait_for_progress(self) -> None:
        """Until everybody has moved bytes to everybody, by everything, once more."""
        deadline = Deadline(RECOVERY_S)
        before = self._cluster.call_all("progress", indices=MEMBERS)
        while True:
            now = self._cluster.call_all("progress", indices=MEMBERS)
            late = [
                f"rank {initiator} to rank {target} by its {kind}"
                for initiator in MEMBERS
                for target, rounds in now[initiator].items()
                for kind in KINDS
                if rounds[kind] <= before[initiator][target][kind]
            ]
            if not late:
                return
            assert not deadline.expired, f"no byte has moved within {RECOVERY_S:g} s: {late}"
            time.sleep(0.05)

    def _barriers(self) -> list[tuple[int, str]]:
        return self._cluster.call_all("barrier", indices=MEMBERS)

    def _expect_idle(self) -> None:
        """No thread spins: CPU time of members that have nothing to do."""
        before = {rank: cpu_s(self._cluster.pid(rank)) for rank in MEMBERS}
        began = time.monotonic()
        time.sleep(IDLE_S)  # what is measured
        took_s = time.monotonic() - began
        for rank in MEMBERS:
            used = {
                thread: (spent - before[rank].get(thread, 0.0)) / took_s
                for thread, spent in cpu_s(self._cluster.pid(rank)).items()
            }
            share = sum(used.values())
            self.totals.idle_most = max(self.totals.idle_most, share)
            assert share < IDLE_SHARE, f"rank {rank} is idle and uses {share:.1%} of a core: {used}"


def cpu_s(pid: int) -> dict[str, float]:
    """CPU time by thread."""
    spent = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            spent[f"{name} {task.name}"] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
    return spent
