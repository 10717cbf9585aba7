"""A simulated member's part in one object: join, leave, offers to neighbours, and what it hears of the others.

Who takes part is decided by the real `Participants` and their `Roster`; what is said to the store and to neighbours,
and when, follows `address_space`: `pool.py`, `publication.py`, `group.py` and `share_protocol.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.address_space.exchange.exchange import TICK_S
from memfabric_hybrid.address_space.join_fact import DataPlace, JoinFact
from memfabric_hybrid.address_space.messages import (
    Accept,
    Answer,
    Done,
    NotHere,
    Offer,
    Refuse,
    Request,
    Share,
    Withdraw,
)
from memfabric_hybrid.address_space.participants import Participants
from memfabric_hybrid.address_space.pool import REANNOUNCE_PAUSE_S
from memfabric_hybrid.errors import Code
from memfabric_hybrid.membership.roster import Effect, Joined, Returned, Roster, Stamp
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.interface import FAREWELL_S, WatchUpdate
from simulation.calls import Calls
from simulation.failed import Failed
from simulation.task import Steps
from simulation.turns import Turns

if TYPE_CHECKING:
    from simulation.member import Member

NOWHERE = DataPlace("10.0.0.1:1", b"", b"")
JOIN_S, LEAVE_S = 8.0, 3.0  # time-outs of the program


class Part:
    """`follows_all`: it hears of every rank; otherwise of its own host, and of those that it seeks."""

    def __init__(self, member: Member, object_name: str, follows_all: bool) -> None:
        self.object_name = object_name
        self.key = join_fact.key(object_name, member.host.name, member.rank)
        self.settled_at: float | None = None  # when the last join was a success, if we have not left since
        roster = Roster(member.rank, member.heartbeat_timeout_s)
        self.known = Participants(member.rank, member.instance, member.host.name, member.entry.capacity, roster)
        self._member = member
        self._world = member.world
        self._client = member.client
        self._neighbours = member.neighbours
        self._secret = member.instance.to_bytes(16, "big")
        self._follows_all = follows_all
        self._generations = 0
        self.watches: dict[str | None, int] = {}  # by the key of the host; None: of all hosts
        self._turns = Turns(member)
        self._is_ticking = False
        self._calls = Calls(member)
        self._reannounce_at: float | None = None  # when neighbours are asked again
        self._asks_store = False  # about those who have not registered there again
        self._withdrawn: set[Stamp] = set()  # whose own word we have that they are over
        self._told: dict[int, bool] = {}  # what the effects so far amount to
        self._epoch = 0

    @property
    def is_joined(self) -> bool:
        return bool(self.watches)

    def follows(self, host: str) -> bool:
        return None in self.watches or join_fact.host_key(host) in self.watches

    # --- what the program does --------------------------------------------------------------------------------------

    def join(self) -> Steps[None]:
        until = self._world.now + JOIN_S
        yield from self._turns.take(until)
        try:
            self._generations += 1
            self.known.begin(self._generations)
            yield from self.publish(until)
            own_host = join_fact.host_key(self._member.host.name)
            yield from self._follow(None if self._follows_all else own_host, until)
            yield from self._offer(until)
        except Failed:
            yield from self._retire(self._world.now + FAREWELL_S)
            self._turns.end()
            raise
        self.settled_at = self._world.now
        self._turns.end()

    def leave(self) -> Steps[None]:
        until = self._world.now + LEAVE_S
        yield from self._turns.take(until)
        yield from self._retire(until)
        self._turns.end()

    def publish(self, until: float, dram_bytes: int = 1) -> Steps[None]:
        """Again when our memory has grown."""
        member = self._member
        fact = JoinFact(
            *self.known.own_stamp, member.host.name, member.instance, dram_bytes, 0, "", self._secret, 1, 0, "", 0,
            NOWHERE,
        )  # fmt: skip
        yield from self._client.ask(m.Set(self.key, join_fact.encode(fact), True), until)

    def seek(self, rank: int, until: float) -> Steps[None]:
        """Returns when all that the store knew of that rank at the call is known here."""
        is_new = False
        if None not in self.watches:
            host = yield from self._member.host_of(rank, until)
            is_new = host is not None and (yield from self._follow(join_fact.host_key(host), until))
        if not is_new:
            yield from self._catch_up(until)

    def _catch_up(self, until: float) -> Steps[None]:
        """All that the store knew at the call is known here: it tells everything in order."""
        watch = yield from self._client.watch(self.key, lambda update: None, until)
        yield from self._client.end_watch(watch)

    def _follow(self, host: str | None, until: float) -> Steps[bool]:
        """False if that is done already, or we do not take part."""
        generation = self._generations
        if not self.known.takes_part or None in self.watches or host in self.watches:
            return False
        prefix = join_fact.prefix(self.object_name, host)
        watch = yield from self._client.watch(prefix, partial(self._on_update, host), until)
        if not self.known.takes_part or generation != self._generations or host in self.watches:
            yield from self._client.end_watch(watch)
        else:
            self.watches[host] = watch
        return True

    def _retire(self, until: float) -> Steps[None]:
        known = self.known
        self.settled_at = None
        known.takes_part = False
        self._member.invariants.views.stops(self._member)
        withdraw = Withdraw(self.object_name, known.own_rank, *known.own_stamp, "", self._secret)
        acquainted = [one for one in known.neighbours() if self._neighbours.has_met(one.instance)]
        yield from self._neighbours.ask(acquainted, withdraw, until, known.shows)
        try:
            yield from self._client.ask(m.Delete(self.key), self._world.now + FAREWELL_S)
        except Failed as failure:
            self._world.note(self._member, "the store did not hear that it leaves:", failure)
        watches, self.watches = self.watches, {}
        for watch in watches.values():
            yield from self._client.end_watch(watch)
        self._apply(known.clear())

    def _offer(self, until: float) -> Steps[None]:
        known = self.known
        offer = Offer(self.object_name, self._share(), self._secret)
        replies = yield from self._neighbours.ask(known.neighbours(), offer, until, known.shows)
        refusals: list[Refuse] = []
        is_late = False
        for neighbour, answer in replies.items():
            if answer is None:
                is_late = is_late or (self._neighbours.is_linked(neighbour.instance) and known.shows(neighbour))
            elif isinstance(answer, Refuse):
                refusals.append(answer)
            elif isinstance(answer, Accept) and self._neighbours.is_linked(neighbour.instance):
                self._admit(answer.share)
        for refusal in refusals:
            raise Failed(refusal.code, refusal.sentence)
        if is_late:
            raise Failed(Code.TIMEOUT, "neighbours did not take our memory in time")

    def _share(self) -> Share:
        return Share(self.known.own_rank, *self.known.own_stamp, self._member.instance, 1, 0, "", 0, ())

    def _admit(self, share: Share) -> None:
        effects = self.known.attached(share.rank, Stamp(share.instance, share.generation))
        if effects is not None:
            self._apply(effects)

    # --- what is heard of others ------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer | None:
        """To a neighbour; None while the store has not shown who asks."""
        known = self.known
        if isinstance(request, Offer) and not known.takes_part:
            return NotHere()
        proved = known.is_proved(request.rank, request.instance, request.secret)
        if proved is False:
            return Refuse(int(Code.NOT_CONNECTED), "it cannot prove its rank")
        if isinstance(request, Withdraw):
            if proved:
                stamp = Stamp(request.instance, request.generation)
                self._withdrawn.add(stamp)
                self._apply(known.withdrawn(request.rank, stamp, request.reason))
            return Done()
        if proved is None:
            return None
        self._admit(request.share)
        return Accept(self._share())

    def lost(self, instance: int) -> None:
        """A neighbour's process is over."""
        self._apply(self.known.lost(instance, "its process died"))
        self.known.forget_process(instance)

    def _on_update(self, host: str | None, update: WatchUpdate) -> None:
        known = self.known
        facts, gone = join_fact.decode(update)
        if update.snapshot:
            self._apply(known.all_shown(facts, update.incarnation, self._world.now, host))
            if None in self.watches or host in self.watches:
                self._reannounce_soon()
        else:
            over = {rank: None for place, rank in gone if known.is_known_at(rank, place)}
            self._apply(known.shown({**over, **facts}))
        self._tick_if_wanted()
        self._neighbours.look_again()

    def _apply(self, effects: list[Effect]) -> None:
        """Views are numbered, and nobody comes or goes twice."""
        member, epoch = self._member, self.known.roster.epoch
        changes = 0
        for effect in effects:
            if isinstance(effect, Returned):
                self._reannounce_soon()
                continue
            is_there = isinstance(effect, Joined)
            if self._told.get(effect.rank, False) == is_there:
                self._world.fail(f"{member} (rank {member.rank}) is told twice: {effect}")
            self._told[effect.rank] = is_there
            if is_there and self.known.roster.present.get(effect.rank) in self._withdrawn:
                self._world.fail(f"{member} (rank {member.rank}) takes {effect.rank} for present again, which has left")
            changes += 1
        if epoch != self._epoch + changes:
            self._world.fail(f"{member} (rank {member.rank}): view {epoch} comes after view {self._epoch}: {effects}")
        self._epoch = epoch

    # --- after a silence --------------------------------------------------------------------------------------------

    def _tick_if_wanted(self) -> None:
        if not self._is_ticking and (self._reannounce_at is not None or self.known.roster.waits_for_time):
            self._is_ticking = True
            self._world.after(TICK_S, self._member.run, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        now = self._world.now
        if self.known.roster.is_overdue(now) and not self._asks_store:
            self._asks_store = True
            self._calls.post(self._decide_unheard)
        if self._reannounce_at is not None and now >= self._reannounce_at:
            self._reannounce_soon()
        self._tick_if_wanted()

    def _reannounce_soon(self) -> None:
        self._reannounce_at = None
        self._calls.post(self._reannounce)

    def _reannounce(self) -> Steps[None]:
        self._reannounce_at = None
        until = self._world.now + self._member.heartbeat_timeout_s
        try:
            yield from self._turns.take(until)
            try:
                if self.is_joined and not self._member.is_evicted:
                    yield from self._offer(until)
            finally:
                self._turns.end()
        except Failed as failure:
            self._world.note(self._member, "could not be offered again:", failure)
            self._reannounce_at = self._world.now + REANNOUNCE_PAUSE_S
            self._tick_if_wanted()

    def _decide_unheard(self) -> Steps[None]:
        """Who has not registered with a store that was away is gone, if the store could hear it."""
        try:
            yield from self._catch_up(self._world.now + self._member.heartbeat_timeout_s / 2)
        except Failed:
            self.known.roster.wait_longer(self._world.now)
        else:
            self._apply(self.known.tick(self._world.now))
        self._asks_store = False
        self._tick_if_wanted()
