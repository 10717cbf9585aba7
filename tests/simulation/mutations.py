"""Plausible bugs of the pure machines, for a test to switch on: the simulation has to find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from memfabric_hybrid.membership.roster import Effect as RosterEffect
from memfabric_hybrid.membership.roster import Roster, Stamp
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state import restoring, sessions
from memfabric_hybrid.store.state.effects import ConnectionId, Effect
from memfabric_hybrid.store.state.ranks import RankTable
from memfabric_hybrid.store.state.recovery import Recovery
from memfabric_hybrid.store.state.rendezvous import RendezvousTable
from memfabric_hybrid.store.state.sessions import Session
from memfabric_hybrid.store.state.tables import StoreTables
from memfabric_hybrid.store.state.waiters import KeyWaiters, Waiter
from memfabric_hybrid.store.state.watches import WatchTable

Mutation = Callable[[pytest.MonkeyPatch], None]


def ranks_are_given_before_members_could_come_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "is_over", lambda self, now, heartbeat_timeout_s: True)


def nobody_is_told_that_a_rank_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RendezvousTable, "rank_gone", lambda self, group, rank, session: [])


def who_arrived_and_died_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A bug that there was."""

    def forget(self: RendezvousTable, rendezvous: object, rank: int) -> list[Effect]:
        rendezvous.unclaimed.clear()  # type: ignore[attr-defined]
        return original(self, rendezvous, rank)  # type: ignore[arg-type]

    original = RendezvousTable._forget_arrival
    patch.setattr(RendezvousTable, "_forget_arrival", forget)


def a_restore_keeps_what_is_not_listed(patch: pytest.MonkeyPatch) -> None:
    def drop(tables: StoreTables, session: Session, message: m.Restore) -> list[Effect]:
        tables.watches.end_all(session.id)
        return []

    patch.setattr(restoring, "_drop_unlisted", drop)


def a_stalled_store_accuses_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions, "USUAL_GAP_S", float("inf"))


def a_deadline_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    def add(self: KeyWaiters, connection: ConnectionId, waiter: Waiter) -> None:
        before = self._next_deadline.at
        original(self, connection, waiter)
        self._next_deadline.at = before

    original = KeyWaiters.add
    patch.setattr(KeyWaiters, "add", add)


def a_watch_begins_before_what_is_pending_is_told(patch: pytest.MonkeyPatch) -> None:
    def untold(self: WatchTable, session: bytes) -> Iterator[tuple[str, int, dict[str, bytes | None]]]:
        return iter(())

    patch.setattr(WatchTable, "untold", untold)


def the_roster_believes_late_words(patch: pytest.MonkeyPatch) -> None:
    def attached(self: Roster, rank: int, stamp: Stamp) -> list[RosterEffect]:
        self._withdrawn.clear()
        return original(self, rank, stamp)

    original = Roster.attached
    patch.setattr(Roster, "attached", attached)


def views_are_numbered_from_the_beginning_after_a_leave(patch: pytest.MonkeyPatch) -> None:
    def clear(self: Roster) -> list[RosterEffect]:
        effects = original(self)
        self.epoch = 0
        return effects

    original = Roster.clear
    patch.setattr(Roster, "clear", clear)


def who_is_not_heard_in_time_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roster, "is_overdue", lambda self, now: False)


def who_comes_back_is_asked_for_its_rank_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoreTables, "_restored", StoreTables.session)


def who_has_come_in_is_taken_for_a_stranger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RankTable, "settle", lambda self, name, rank: None)


ALL: tuple[Mutation, ...] = (
    ranks_are_given_before_members_could_come_back,
    nobody_is_told_that_a_rank_is_gone,
    who_arrived_and_died_is_waited_for,
    a_restore_keeps_what_is_not_listed,
    a_stalled_store_accuses_everybody,
    a_deadline_is_not_noted,
    a_watch_begins_before_what_is_pending_is_told,
    the_roster_believes_late_words,
    views_are_numbered_from_the_beginning_after_a_leave,
    who_is_not_heard_in_time_is_waited_for,
    who_comes_back_is_asked_for_its_rank_too_early,
    who_has_come_in_is_taken_for_a_stranger,
)
