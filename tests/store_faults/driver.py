"""The driver of the campaign against the store: who is in trouble, whether what failed had a cause, who has which rank,
and whether the logs explain what was done. What each fault does is in `faults`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from chaos.call_checker import FailedCall
from chaos.fault_schedule import FaultSchedule
from chaos.recovery import expect_recovered
from chaos.shared_state import Field
from chaos.slot_driver import SlotDriver, Violation
from chaos.starvation import StarvationMeter
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.membership.member_fact import MemberFact
from memfabric_hybrid.store import connect
from store_faults import log_lines
from store_faults.log_lines import Expected
from store_faults.plan import CALM_S, LOG_LATE_S, SEED_VARIABLE, SETTLE_S, SLOTS, STARVED_S
from store_faults.troubles import NODES, STORE, Troubles
from store_faults.worlds import World
from support.workers import Cluster

CANCELLED = -2003  # tickets only: no pool that copies has left
MET_S = 1.0  # a store that is back is found within this time
RANKS_S = 20.0  # until the store has heard of everybody
_decode_fact = msgspec.msgpack.Decoder(MemberFact).decode
ENTRY_S = 40.0  # until a newcomer has joined, whatever happens


class Driver(SlotDriver):
    seed_variable = SEED_VARIABLE

    def __init__(self, seed: int, folder: Path, world: World, workers: Cluster) -> None:
        super().__init__(seed, folder, workers, FaultSchedule(seed, world.faults))
        self.campaign = f"store faults, {world.name}"
        self.world = world
        self.store_in_trouble = False
        self._store_well_since = 0.0
        self.troubles = Troubles()
        self._failures: list[tuple[int, FailedCall]] = []  # by slot, not judged yet
        self.excused = 0  # calls that failed for a reason
        self._ranks: dict[int, tuple[int, int]] = {}  # slot → (life, rank of the pool), as first seen
        self._expected: list[tuple[int, int, Expected]] = []  # slot, life, line
        self._starvation = StarvationMeter()  # where we are starved, the store may be
        self._starvation.start()

    def close(self) -> None:
        self._starvation.stop()
        super().close()

    def begin_arguments(self, slot: int, life: int) -> tuple[Any, ...]:
        return slot, life, self.seed, self.world.url, str(self.folder)

    def store_report(self) -> str:
        return self.world.report()

    def start_all(self) -> None:
        for slot in range(SLOTS):
            self.begin(slot)
        self.wait_for_quiet()

    # ---- lives ------------------------------------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        self.troubles.begin(slot, time.monotonic())
        super().begin(slot)

    def kill(self, slot: int) -> None:
        """After a look at what it did; a stopped one was looked at before."""
        if not self.state.get(slot, Field.STOPPED_SINCE):
            self._expect_farewell(slot, "was killed")
        self.troubles.begin(slot, time.monotonic())
        super().kill(slot)

    def stop(self, slot: int, *, for_long: bool = False) -> None:
        if for_long:
            self._expect_farewell(slot, "was silent or dead", needs_store=True)
        self.troubles.begin(slot, time.monotonic())
        super().stop(slot)

    def _expect_farewell(self, slot: int, what: str, *, needs_store: bool = False) -> None:
        """All others say that the slot's rank is gone, if they were aware of it."""
        now = time.monotonic()
        if self.state.get(slot, Field.ENTERED_AT) and not self.troubles.excuse_call(slot, slot, now, now):
            rank = self.state.get(slot, Field.POOL_RANK) - 1
            others = [other for other in range(SLOTS) if other != slot]
            self.expect(others, f"slot {slot} {what}", rf"bm object 0: rank {rank} is gone: \w", needs_store)

    def go_on(self, slot: int) -> None:
        super().go_on(slot)
        if self.state.get(slot, Field.ENTERED_AT):
            self.troubles.end(slot, time.monotonic())

    def watch(self) -> None:
        super().watch()
        complaint = self.world.complaint()
        if complaint:
            raise Violation(complaint)
        for slot in range(SLOTS):
            entered_ns = self.state.get(slot, Field.ENTERED_AT)
            if entered_ns and not self.state.get(slot, Field.DYING) and not self.state.get(slot, Field.STOPPED_SINCE):
                self.troubles.end(slot, entered_ns / 1e9)

    def wait_for_quiet(self) -> None:
        super().wait_for_quiet()
        self.wait_for(
            lambda: all(self.state.get(slot, Field.ENTERED_AT) for slot in range(SLOTS)),
            ENTRY_S,
            "everybody has joined",
        )

    def store_in_trouble_now(self, what: int = STORE) -> None:
        """Or one of its nodes, which nobody has to notice."""
        self.store_in_trouble = True
        self.troubles.begin(what, time.monotonic())

    def store_is_well(self) -> None:
        self.store_in_trouble = False
        self._store_well_since = time.monotonic()
        for what in (STORE, NODES):
            self.troubles.end(what, self._store_well_since)
        self.say("the store is well")

    def has_met_the_store(self) -> bool:
        """Whether everybody has had the time to find it since its last trouble."""
        return time.monotonic() - self._store_well_since > MET_S

    # ---- what the logs must say -------------------------------------------------------------------------------------

    def expect(self, slots: Iterable[int], event: str, pattern: str, needs_store: bool = False) -> None:
        """A line of each of these, from now on, unless it gets into trouble itself, or the store that it needs."""
        now = time.monotonic()
        expected = Expected(event, pattern, now - 0.5, needs_store)
        self._expected += [
            (slot, self.state.get(slot, Field.LIFE), expected)
            for slot in slots
            if self.state.get(slot, Field.ENTERED_AT) and not self.troubles.met(slot, now, now)
        ]

    def _check_logs(self) -> None:
        """Some lines follow only when it is certain that somebody does not come back."""
        until = time.monotonic() + SETTLE_S
        while (complaints := self._look_at_logs()) and time.monotonic() < until:
            self.wait(0.2)
        if complaints:
            raise Violation("\n".join(complaints))
        self._expected.clear()

    def _look_at_logs(self) -> list[str]:
        complaints = []
        now = time.monotonic()
        for slot in range(SLOTS):
            life = self.state.get(slot, Field.LIFE)
            lines = log_lines.parse(self._log_of(slot, life).read_text(errors="replace"))
            expected = [
                one
                for whose, which, one in self._expected
                if (whose, which) == (slot, life)
                and not self.troubles.met(slot, one.since, min(now, one.since + LOG_LATE_S))
                and not (one.needs_store and self._store_was_disturbed(one.since, one.since + LOG_LATE_S))
            ]
            complaints += [f"slot {slot}: {text}" for text in log_lines.unexplained(lines, expected)]
            complaints += [f"slot {slot} says too much: {text}" for text in log_lines.floods(lines)]
        return complaints

    def _store_was_disturbed(self, began: float, ended: float) -> bool:
        return any(self.troubles.met(what, began, ended) for what in (STORE, NODES))

    def _log_of(self, slot: int, life: int) -> Path:
        return self.folder / f"slot-{slot}.{life}.log"

    # ---- what must hold ---------------------------------------------------------------------------------------------

    def look_at(self, slot: int) -> None:
        """What it did until now: before it is killed."""
        self.note_totals(slot)
        self._note_failures(slot)

    def _note_failures(self, slot: int) -> None:
        """Judged later: whoever was starved meanwhile, and is looked at after it, is an excuse as well."""
        self._failures += [(slot, one) for one in self.workers.call(slot, "take_failures")]
        for began, ended in self.workers.call(slot, "take_starvation"):
            self.troubles.add(slot, began, ended)

    def _judge_failures(self) -> None:
        for began, ended in self._starvation.take_spans(STARVED_S):
            self.troubles.add(STORE, began, ended)
        for began, ended in self.world.take_unserved():
            if not self._store_was_disturbed(began - MET_S, ended):  # what is done to its nodes ends nobody's lease
                for slot in range(SLOTS):
                    self.troubles.add(slot, began, ended)
        for slot, one in self._failures:
            if one.code == CANCELLED:
                continue  # by whoever had submitted it
            if one.towards is None or one.kind.startswith(("transfer", "probe")):
                # The name of an engine that is new is looked up in the store.
                is_excused = self.troubles.excuse_control(one.began, one.ended)
            else:
                is_excused = self.troubles.excuse_call(slot, one.towards, one.began, one.ended)
            if not is_excused:
                raise Violation(
                    f"slot {slot}: {one.kind} {'' if one.towards is None else f'to slot {one.towards} '}returned "
                    f"{one.code} at {one.ended:.3f} after {one.ended - one.began:.3f} s, and nothing was wrong: "
                    f"{one.sentence}"
                )
        self.excused += len(self._failures)
        self._failures.clear()

    def expect_all_well(self) -> None:
        """Every fault has ended: everybody reaches everybody, nothing fails, ranks are whose they were."""
        self.wait_for_quiet()
        expect_recovered(self)
        self._check_ranks()
        self.wait(CALM_S)
        for slot in range(SLOTS):
            self._note_failures(slot)
        self._judge_failures()
        self._check_logs()

    def _check_ranks(self) -> None:
        claimed: list[dict[str, int]] = self.workers.call_all("ranks")
        for slot, ranks in enumerate(claimed):
            life = self.state.get(slot, Field.LIFE)
            seen_life, seen_rank = self._ranks.setdefault(slot, (life, ranks["bm"]))
            if seen_life == life and seen_rank != ranks["bm"]:
                raise Violation(f"slot {slot} had rank {seen_rank}, and has rank {ranks['bm']} now")
            self._ranks[slot] = (life, ranks["bm"])
        for kind in ("bm", "shm"):
            pids = {ranks[kind]: self.workers.pid(slot) for slot, ranks in enumerate(claimed)}
            if len(pids) != SLOTS:
                raise Violation(f"ranks of {kind} that two processes have: {claimed}")
            self._expect_in_store(kind, pids)

    def _expect_in_store(self, kind: str, pids: dict[int, int]) -> None:
        """The store knows exactly these ranks, each as that process's."""
        deadline = Deadline(RANKS_S)
        with self.world.entered(), connect(self.world.url) as store:
            while True:
                entries = store.prefix(f"{kind}/ranks/", deadline=deadline).entries
                found = {int(key.rpartition("/")[2]): _decode_fact(value).pid for key, value in entries.items()}
                if found == pids:
                    return
                if deadline.expired:
                    raise Violation(f"ranks of {kind} in the store: {found}, but these processes have them: {pids}")
                time.sleep(0.05)

    def log_summary(self) -> str:
        """How many lines there were, of all lives."""
        kinds = sorted(
            {
                re.sub(r"^.*?: ", "", log_lines.kind_of(line.text))[:60]
                for path in self.folder.glob("slot-*.log")
                for line in log_lines.parse(path.read_text(errors="replace"))
            }
        )
        count = sum(len(path.read_text().splitlines()) for path in self.folder.glob("slot-*.log"))
        return f"  {self.excused} calls failed, each for a reason; {count} lines of log, of {len(kinds)} kinds"
