"""One object's range in this process: our segments, the neighbours' segments, and everybody's comings and goings.

Both Big Memory and Share Memory stand on this. Locks, outermost first:
`_changes` gives turns to join, leave, extend and re-announce, in which the store and the neighbours are talked to.
`_lock` guards roster, facts and segments; it is held for moments only, also on the exchange's and the store's threads.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from memfabric_hybrid import _native, clock, logs, settings
from memfabric_hybrid.address_space.changes import Changes
from memfabric_hybrid.address_space.exchange import Neighbour
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.messages import (
    Accept,
    Answer,
    Done,
    NotHere,
    Offer,
    Refuse,
    Request,
    SegmentFact,
    Share,
    Withdraw,
)
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.participants import JoinFact, Participants, farewell
from memfabric_hybrid.address_space.pool_owner import PoolOwner
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import (
    Code,
    FabricError,
    InvalidParam,
    NoResources,
    NotConnected,
    NotStarted,
    TimedOut,
    Unreachable,
    failure_of,
)
from memfabric_hybrid.membership.roster import Effect, Joined, Left, Returned, Stamp
from memfabric_hybrid.store import FAREWELL_S, MOMENT_S, Refusal, Watch, WatchUpdate

log = logs.get(__name__)
REANNOUNCE_PAUSE_S = 1.0
_generations = itertools.count(1)  # of the process: an object that is made anew must not repeat an earlier one's


class Pool:
    """`space` is the native range, already reserved and holding `own`, our memory; owns both from now on."""

    def __init__(self, node: Node, spec: PoolSpec, space: _native.Space, own: OwnMemory, owner: PoolOwner) -> None:
        self.spec = spec
        self._node = node
        self._space = space
        self._own = own
        self._owner = owner
        self._rank = node.member.rank
        self._changes = Changes(spec.title)
        self._lock = threading.Lock()
        self._participants = Participants(node.member, spec.layout.capacity, self._lock)
        self._roster = self._participants.roster
        self._watch: Watch | None = None
        self._joining = False
        self._is_last_turn = False  # calls of others are called off; our own waits until neighbours have let go
        self._evicted = False
        self._reannounce_at: float | None = None  # when neighbours that could not take our share are asked again
        self.destroyed = False
        self.abandoned = False  # in a forked child: the parent's, not ours
        node.add(self)

    # ---- the program's calls ---------------------------------------------------------------------------------------

    @property
    def joined(self) -> bool:
        return self._watch is not None

    def view(self) -> tuple[int, list[int]]:
        """(epoch, present ranks): the numbered view of who takes part."""
        with self._lock:
            return self._participants.view()

    def stamps(self) -> dict[int, Stamp]:
        """Everybody who takes part, in order of rank, each with the number of its participation."""
        with self._lock:
            return self._participants.stamps()

    def hosts(self) -> list[list[int]]:
        """The ranks that take part, host by host; each host's in order, the hosts in order of their lowest rank."""
        with self._lock:
            return self._participants.hosts()

    def gone(self) -> dict[int, str]:
        """Who was here and is not any more, and why."""
        with self._lock:
            return self._participants.gone()

    def wait_for_all(self, deadline: Deadline) -> None:
        """Returns when every rank takes part and the memory of this host is mapped.

        TimedOut names who did not come; NotConnected, at once, who came and is gone again.
        """
        with self._lock:
            self._participants.wait_for_all(deadline)

    def wait_for_store(self, deadline: Deadline) -> str:
        """The life of the store (its incarnation) in which everybody who takes part is registered.

        What such a store calls free is free: whoever holds it would have said so in the same message as its rank.
        """
        with self._lock:
            return self._participants.wait_for_store(deadline)

    def miss(self, rank: int, reason: str) -> None:
        """Whoever waits for that rank waits in vain, says somebody else than our neighbours (any thread)."""
        with self._lock:
            self._participants.miss(rank, reason)

    def join(self, deadline: Deadline) -> None:
        """Takes part. Returns when everybody who was there before has our memory mapped, and we theirs.

        Whoever destroys or leaves the object meanwhile ends it: InvalidParam or NotStarted.
        """
        with self._changes.turn(deadline):
            if self.joined:
                return
            self._node.check_serving()
            with self._lock:
                if not self.destroyed:  # a `leave` that came too late for an earlier join
                    self._participants.called_off = None
                self._participants.generation = next(_generations)
                self._participants.takes_part = True
                self._joining = True
            try:
                self._check_wanted()
                self._publish(deadline)
                self._check_wanted()
                self._watch = self._node.member.store.watch(f"{self.spec.name}/", self._on_update, deadline=deadline)
                self._offer(deadline)
                with self._lock:
                    self._participants.check_wanted()
                    self._joining = False
                    self._space._open()
            except BaseException:
                self._retire(Deadline(FAREWELL_S))
                raise
            finally:
                self._joining = False

    def leave(self, deadline: Deadline, reason: str = "") -> None:
        """Stops taking part. Returns when no neighbour touches our memory any more. They are told the reason."""
        with self._lock:
            interrupts = self._joining
            if interrupts:
                self._participants.call_off(NotStarted(f"{self.spec.title} was left while join() was under way"))
        with self._changes.turn(deadline):
            if not self.joined:
                if interrupts:
                    return
                raise NotStarted(f"{self.spec.title} has not joined; there is nothing to leave")
            with self._lock:
                if not self.destroyed:
                    self._participants.called_off = None
            self._space._shut(int(Code.NOT_STARTED), f"{self.spec.title} has left: call join() before copying")
            self._retire(deadline, reason)

    def extend(self, tier: Tier, size_bytes: int, placement: Placement, deadline: Deadline) -> None:
        """Adds memory behind what we have; neighbours can use it when this returns."""
        with self._changes.turn(deadline):
            self._own.extend(tier, size_bytes, placement)
            if self.joined:
                self._offer(deadline)
                self._check_wanted()
                self._publish(deadline)

    def destroy(self, deadline: Deadline, reason: str = "") -> None:
        """Ends everything of this object in this process; idempotent. Interrupts what other threads do with it.

        A call of another thread that waits for the store is not waited for beyond the deadline: it ends the object.
        """
        if self.abandoned:
            return
        with self._lock:
            if not self.destroyed:
                self.destroyed = True
                sentence = f"{self.spec.title} was destroyed meanwhile: the handle is closed"
                self._participants.call_off(InvalidParam(sentence))
                self._space._shut(int(Code.INVALID_PARAM), sentence)
        self._changes.end(deadline, lambda: self._end(deadline, reason))

    def _end(self, deadline: Deadline, reason: str) -> None:
        """The last turn."""
        self._is_last_turn = True
        try:
            if self.joined:
                self._retire(deadline, reason)
        finally:
            self._node.remove(self)
            self._space._close()
            self._own.close()
        with suppress(FabricError):  # a store that is away forgets us by itself, or has done so already
            self._node.member.store.release_range(self.spec.name, deadline=deadline.extended(MOMENT_S))

    # ---- telling the others (in a turn) -----------------------------------------------------------------------------

    def _publish(self, deadline: Deadline) -> None:
        member = self._node.member
        fact = JoinFact(
            member.instance,
            self._participants.generation,
            member.host,
            os.getpid(),
            self._own.size_bytes(Tier.DRAM),
            self._own.size_bytes(Tier.HBM),
            member.exchange_name,
            member.secret,
        )
        member.store.set(self._key(self._rank), msgspec.msgpack.encode(fact), deadline=deadline, ephemeral=True)

    def _offer(self, deadline: Deadline) -> None:
        """Shows our share to every published neighbour, and maps theirs."""
        with self._lock:
            facts, fds = self._own.shown()
            neighbours = self._participants.neighbours()
        offer = Offer(self.spec.name, self._share(facts), self._node.member.secret)
        replies = self._node.exchange.ask(neighbours, offer, fds, deadline, self._is_expected)
        refusals: list[Refuse] = []
        late: list[int] = []
        for neighbour, reply in replies.items():
            if reply is None:
                if self._node.exchange.is_linked(neighbour.instance) and self._is_expected(neighbour):
                    late.append(neighbour.rank)
                continue
            try:
                if isinstance(reply.answer, Accept) and _is_about(reply.answer.share, neighbour):
                    self._space._drain(neighbour.rank)
                    with self._lock:  # a death we were told of while others answered must stay a death
                        if self._node.exchange.is_linked(neighbour.instance):
                            self._attach(reply.answer.share, reply.fds)
                elif isinstance(reply.answer, Refuse):
                    refusals.append(reply.answer)
            finally:
                reply.close()
        if refusals:
            raise failure_of(refusals[0].code, refusals[0].sentence)
        if late:
            raise TimedOut(
                f"{self.spec.title}: ranks {late} of this host did not take our memory within {deadline.timeout_s:g} "
                "s, though they are alive; their Python is busy, or they are stopped: try again when they go on"
            )

    def _retire(self, deadline: Deadline, reason: str = "") -> None:
        """Undoes `join`, also a half-done one. Neighbours hear it from us, with the reason, before the store tells."""
        with self._lock:
            self._participants.takes_part = False
            neighbours = self._participants.neighbours()
            withdraw = Withdraw(
                self.spec.name, self._rank, *self._participants.own_stamp, reason, self._node.member.secret
            )
        exchange = self._node.exchange
        acquainted = [one for one in neighbours if exchange.has_met(one.instance)]  # others have nothing of ours
        try:
            for reply in exchange.ask(acquainted, withdraw, (), deadline, self._is_expected).values():
                if reply is not None:
                    reply.close()
        except NoResources as failure:  # an end must not fail; neighbours will hear it from the store
            log.warning("%s: the neighbours did not hear that we leave: %s", self.spec.title, failure)
        try:
            # A store that is away is not waited for: neighbours hear it from us, and it will not be told again.
            farewell = Deadline(min(FAREWELL_S, deadline.extended(MOMENT_S).remaining_s()))
            self._node.member.store.delete(self._key(self._rank), deadline=farewell)
        except FabricError as failure:  # an end must not fail: it is away, or our key is somebody else's by now
            log.info("%s: the store did not hear that we leave: %s", self.spec.title, failure)
        if self._watch is not None:  # kept until here: it tells `ask` whom not to wait for
            self._watch.close()
            self._watch = None
        with self._lock:
            self._carry_out(self._roster.clear())
            self._participants.forget()

    def reannounce(self) -> None:
        """After our session was lost for a while (re-announcing thread): neighbours may have dropped us."""
        deadline = Deadline(settings.heartbeat_timeout_s())
        self._reannounce_at = None
        try:
            with self._changes.turn(deadline):
                if self.joined and not self._evicted:
                    self._offer(deadline)
        except (Unreachable, NoResources) as failure:
            log.warning("%s: could not be offered again, which is tried anew soon: %s", self.spec.title, failure)
            self._reannounce_at = clock.now() + REANNOUNCE_PAUSE_S
            self._node.exchange.request_tick()
        except InvalidParam:
            if not self.destroyed:
                raise

    def evict(self, reason: str) -> None:
        """Our rank was given to somebody else, or we cannot see the others any more: no copy may pretend otherwise."""
        self._evicted = True
        self._space._shut(int(Code.NOT_CONNECTED), f"{self.spec.title}: {reason}")
        self._owner.rank_gone(self._rank, reason)
        log.error("%s: %s", self.spec.title, reason)

    # ---- hearing from the others -----------------------------------------------------------------------------------

    def handle(self, request: Request, enclosed: Sequence[int]) -> tuple[Answer, Sequence[int]] | None:
        """A neighbour's request (exchange thread). The descriptors of the answer are the caller's.

        None: the store has not shown the sender yet.
        """
        with self._lock:
            if isinstance(request, Offer) and not self._participants.takes_part:
                return NotHere(), ()
            proved = self._participants.is_proved(request.rank, request.instance, request.secret)
        if proved is False:
            raise NotConnected(f"a process claims to be rank {request.rank} and cannot prove it")
        if isinstance(request, Withdraw):
            with self._lock:
                if proved:  # otherwise we never knew it
                    stamp = Stamp(request.instance, request.generation)
                    self._carry_out(self._roster.withdrawn(request.rank, stamp, request.reason))
            return Done(), ()
        return None if proved is None else self._accept(request.share, enclosed)

    def _accept(self, theirs: Share, enclosed: Sequence[int]) -> tuple[Answer, Sequence[int]]:
        self._space._drain(theirs.rank)  # its predecessor's memory; no lock is held while copies leave it
        with self._lock:
            if not self._participants.takes_part:
                return NotHere(), ()
            facts, fds = self._own.duplicates()
            try:
                self._attach(theirs, enclosed)
            except BaseException:
                for fd in fds:
                    os.close(fd)
                raise
            return Accept(self._share(facts)), fds

    def on_lost(self, instance: int) -> None:
        """A neighbour's process is gone (exchange thread)."""
        with self._lock:
            self._carry_out(self._roster.lost(instance, "its process died"))
            self._participants.forget_process(instance)

    def on_refused(self, refusals: Sequence[Refusal]) -> None:
        """What the store would not take back after it was away (store's event thread): whose was it?"""
        ours = {self.spec.name, self._key(self._rank)}
        reasons = [one.sentence for one in refusals if one.kind == "rank" or one.name in ours]
        if reasons:
            self.evict(f"this process was declared dead and lost its rank: {'; '.join(reasons)}")
        self._owner.keys_refused([one for one in refusals if one.kind == "key" and one.name not in ours])

    def on_tick(self) -> bool:
        """Exchange thread; True while time decides something here."""
        with self._lock:
            self._carry_out(self._roster.tick(clock.now()))
            return not self._space._collect() or self._roster.waits_for_time or self._waits_to_reannounce()

    def _waits_to_reannounce(self) -> bool:
        if self._reannounce_at is not None and clock.now() >= self._reannounce_at:
            self._reannounce_at = None
            self._node.reannouncements.post(self.reannounce)
        return self._reannounce_at is not None

    def _on_update(self, update: WatchUpdate) -> None:
        """What the store shows (store's event thread)."""
        with self._lock:
            facts = _join_facts(update)
            if update.snapshot:
                self._participants.facts = {rank: fact for rank, fact in facts.items() if fact is not None}
                stamps = {rank: fact.stamp for rank, fact in self._participants.facts.items()}
                self._carry_out(self._roster.snapshot(stamps, update.incarnation, clock.now()))
                if self._roster.waits_for_time:
                    self._node.exchange.request_tick()
                if self.joined:  # not the first one: the store was away, and newcomers may not know us
                    self._node.reannouncements.post(self.reannounce)
            else:
                for rank, fact in facts.items():
                    self._on_fact(rank, fact)
            self._explain_distant()
            self._participants.tell_waiters()
        if self._node.exchange.awaits_news:
            self._node.exchange.request_tick()

    def _on_fact(self, rank: int, fact: JoinFact | None) -> None:
        if fact is None:
            self._participants.facts.pop(rank, None)
            gone = "it left, or did not answer the store within its heartbeat time-out"
            self._carry_out(self._roster.unpublished(rank, gone))
        else:
            self._participants.facts[rank] = fact
            self._carry_out(self._roster.published(rank, fact.stamp))

    def _explain_distant(self) -> None:
        """Ranks of other hosts count as present once the store shows them; no route leads there, and copies say so."""
        for rank, fact in self._participants.distant().items():
            self._carry_out(self._roster.attached(rank, fact.stamp))
            self._space._revoke(rank, "it is on another host, and this version has no network route")

    # ---- small parts (under `_lock`) -------------------------------------------------------------------------------

    def _attach(self, share: Share, fds: Sequence[int]) -> None:
        """Maps what is new of a neighbour's share."""
        layout = self.spec.layout
        if (share.max_dram, share.max_hbm) != (layout.max_dram, layout.max_hbm):
            raise InvalidParam(
                f"{self.spec.title}: rank {share.rank} was created with max_dram_size {share.max_dram} and "
                f"max_hbm_size {share.max_hbm}, rank {self._rank} with {layout.max_dram} and {layout.max_hbm}; "
                "all ranks must pass the same"
            )
        if len(fds) < len(share.segments):
            raise InvalidParam(
                f"{self.spec.title}: rank {share.rank} shows {len(share.segments)} segments in {len(fds)} files"
            )
        stamp = Stamp(share.instance, share.generation)
        effects = self._roster.attached(share.rank, stamp)
        if self._roster.present.get(share.rank) != stamp:
            return  # it has left meanwhile
        self._carry_out([effect for effect in effects if isinstance(effect, Left)])
        try:
            self._owner.take_enclosed(share.rank, fds[len(share.segments) :])
            refusal = self._owner.obstacle(share)
            if refusal is not None:
                self._space._revoke(share.rank, refusal)
            else:
                self._map(share, fds[: len(share.segments)])
        except FabricError as failure:
            self._carry_out(self._roster.lost(share.instance, f"its memory cannot be mapped here: {failure}"))
            raise
        self._carry_out([effect for effect in effects if isinstance(effect, Joined)])

    def _map(self, share: Share, fds: Sequence[int]) -> None:
        for fact, fd in zip(share.segments, fds, strict=True):
            if fact.slot_offset >= self._space._allocated(share.rank, fact.tier):
                place = (fact.slot_offset, fact.size_bytes)
                self._space._attach(share.rank, fact.tier, fd, 0, *place, sealed=not fact.adopted)
        self._space._activate(share.rank)

    def _carry_out(self, effects: list[Effect]) -> None:
        gone = [effect for effect in effects if isinstance(effect, Left)]
        for left in gone:  # first nobody can start a copy, then the memory goes
            self._space._revoke(left.rank, left.reason)
        for left in gone:
            self._space._detach(left.rank)
            log.info("%s: rank %d is gone: %s", self.spec.title, left.rank, left.reason)
        if gone and not self._space._collect():
            self._node.exchange.request_tick()  # running copies let go of it soon, and nobody waits for them
        self._participants.note(effects)
        for left in gone:
            self._owner.rank_gone(left.rank, farewell(left))
        for effect in effects:
            if isinstance(effect, Joined):
                self._owner.rank_back(effect.rank, self._roster.present[effect.rank])
            if isinstance(effect, Returned):
                self._node.reannouncements.post(self.reannounce)
                continue
            self._node.notices.post(lambda effect=effect: self._owner.group_changed(effect))  # type: ignore[misc]

    def _share(self, facts: tuple[SegmentFact, ...]) -> Share:
        """What we show to a neighbour."""
        layout = self.spec.layout
        return Share(
            self._rank, *self._participants.own_stamp, os.getpid(), layout.max_dram, layout.max_hbm,
            self.spec.tag, self.spec.op_type, facts,
        )  # fmt: skip

    def _is_expected(self, neighbour: Neighbour) -> bool:
        """An asker's question: does the store still show the one whose answer is awaited?"""
        with self._lock:
            called_off = self._participants.called_off is not None and not self._is_last_turn
            return not called_off and self._participants.shows(neighbour)

    def _check_wanted(self) -> None:
        with self._lock:
            self._participants.check_wanted()

    def _key(self, rank: int) -> str:
        return f"{self.spec.name}/{rank}"


def _is_about(share: Share, neighbour: Neighbour) -> bool:
    """Who answers speaks for itself and for nobody else."""
    if (share.rank, share.instance) == (neighbour.rank, neighbour.instance):
        return True
    log.warning("rank %d answered with a share of rank %d, which is ignored", neighbour.rank, share.rank)
    return False


def _join_facts(update: WatchUpdate) -> dict[int, JoinFact | None]:
    """What the store shows, by rank; what is no fact of a rank is left out."""
    facts: dict[int, JoinFact | None] = {}
    for key, value in update.entries.items():
        name = key.rpartition("/")[2]
        try:
            facts[int(name)] = None if value is None else msgspec.msgpack.decode(value, type=JoinFact)
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("the store shows %r, which no rank has written: %s", key, error)
    return facts
