"""The ranks that take part in one object: what is heard of them is decided and carried out here, in one step.

Threads: any; nothing here blocks, except what waits for others, which lets go of the lock meanwhile, and
`admit` before it takes the lock. `_lock` guards what is known and makes decision and effect one: what was decided last
is what the space shows. It is held for moments only, also on the exchange's and the store's threads; inside of it the
queues and the exchange may be locked, the owner is told, and nobody is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from memfabric_hybrid import clock, logs
from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.address_space.join_fact import DataPlace, JoinFact
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.messages import Request, Share
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.participants import Participants, farewell
from memfabric_hybrid.address_space.peer_memory import PeerMemory
from memfabric_hybrid.address_space.pool_owner import PoolOwner
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NotConnected, NotStarted, TimedOut
from memfabric_hybrid.membership.roster import Effect, Joined, Left, Returned, Stamp
from memfabric_hybrid.store import WatchUpdate
from memfabric_hybrid.transports.nic import is_loopback
from memfabric_hybrid.transports.routes import MAPPED_MEMORY, NETWORK, NONE, UCX, Route, encrypted
from memfabric_hybrid.transports.ucx_ends import UcxEnd
from memfabric_hybrid.waiting_log import WaitingLog

log = logs.get(__name__)
NOT_FROM_HERE = (
    "it is on another host, and serves its memory at {address}, where other hosts cannot reach it; start rank {rank} "
    "with the network address of the store, or with set_nic"
)
NOT_SHOWN = UcxEnd(obstacle="the store has not shown it yet")


class Group:
    """`reannounce` has our memory offered again, soon and elsewhere."""

    def __init__(
        self,
        node: Node,
        participants: Participants,
        memory: PeerMemory,
        owner: PoolOwner,
        reannounce: Callable[[], None],
    ) -> None:
        self._node = node
        self._participants = participants
        self._memory = memory
        self._title = memory.title
        self._owner = owner
        self._reannounce = reannounce
        self._routes: dict[int, Route] = {}  # to the others, as long as they take part
        self._to_reach: set[int] = set()  # ranks of other hosts that the store has shown, and nothing was done yet
        self._called_off: FabricError | None = None  # what a call that waits for others has to raise instead
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # somebody came or went, or nobody is waited for any more

    # ---- who takes part --------------------------------------------------------------------------------------------

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
            return dict(self._participants.gone)

    def own_stamp(self) -> Stamp:
        with self._lock:
            return self._participants.own_stamp

    def neighbours(self) -> list[Neighbour]:
        """The others of this host, as far as the store shows them."""
        with self._lock:
            return self._participants.neighbours()

    def route(self, rank: int) -> Route:
        """The way to that rank. NotConnected if it does not take part."""
        with self._lock:
            if rank in self._routes:
                return self._routes[rank]
            raise NotConnected(self._participants.gone.get(rank, f"rank {rank} has not joined"))

    @property
    def takes_part(self) -> bool:
        """Ourselves."""
        return self._participants.takes_part

    # ---- waiting for others ----------------------------------------------------------------------------------------

    def wait_for_all(self, deadline: Deadline) -> None:
        """Returns when every rank takes part and the memory of this host is mapped.

        TimedOut names who did not come; NotConnected, at once, who came and is gone again.
        """
        waiting = WaitingLog(log, deadline.timeout_s)
        while missing := self._missing_after(waiting.due_in_s(), deadline):  # under no lock: a logger may call us
            ranks = ", ".join(map(str, missing))
            waiting.tell(f"{self._title}: {len(missing)} of {self._participants.capacity} ranks have not come: {ranks}")

    def missing_of(self, ranks: frozenset[int]) -> list[int]:
        """Those that do not take part now, or cannot be reached. NotStarted if we do not take part."""
        with self._lock:
            return self._missing_of(ranks)

    def _missing_of(self, ranks: frozenset[int]) -> list[int]:
        if not self._participants.takes_part:
            raise NotStarted(f"{self._title}: this rank does not take part: call join() first")
        return sorted(ranks - set(self._participants.view()[1]))

    def nudge(self) -> None:
        """Something has changed that whoever waits here may want to look at."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(
        self,
        ranks: frozenset[int],
        deadline: Deadline,
        unless: Callable[[], bool] = lambda: False,
        waiting: WaitingLog | None = None,
    ) -> bool:
        """Returns when these take part and can be reached, however often they come and go meanwhile.

        TimedOut names who is not here; NotStarted if we do not take part, or leave meanwhile. False, and they may not
        be here, once `unless()`. `waiting`: of a call that waits in several steps.
        """
        waiting = waiting or WaitingLog(log, deadline.timeout_s)
        while True:
            until = Deadline(waiting.due_in_s())
            with self._changed:
                while (missing := self._missing_of(ranks)) and not unless() and not deadline.expired:
                    if until.expired:
                        break
                    self._changed.wait(min(deadline.remaining_s(), until.remaining_s()))
                if not missing or unless():
                    return not missing
                gone = self._participants.gone
                names = "; ".join([", ".join(map(str, missing)), *(gone[rank] for rank in missing if rank in gone)])
            if deadline.expired:
                raise TimedOut(
                    f"{self._title}: {len(missing)} of {len(ranks)} ranks did not come within "
                    f"{deadline.timeout_s:g} s: {names}; start them, or wait longer"
                )
            # Under no lock: a logger may call us.
            waiting.tell(f"{self._title}: {len(missing)} of {len(ranks)} ranks have not come: {names}")

    def _missing_after(self, wait_s: float, deadline: Deadline) -> list[int]:
        """Who is missing so much later; nobody, as soon as that is so."""
        known, until = self._participants, Deadline(wait_s)
        with self._changed:
            self._check_wanted()
            while missing := known.missing():
                for reason in known.gone.values():
                    raise NotConnected(reason)
                if deadline.expired:
                    raise TimedOut(
                        f"{self._title}: {len(missing)} of {known.capacity} ranks did not come within "
                        f"{deadline.timeout_s:g} s: {', '.join(map(str, missing))}"
                    )
                if until.expired:
                    break
                self._changed.wait(min(deadline.remaining_s(), until.remaining_s()))
                self._check_wanted()
        return list(missing)

    def wait_for_store(self, deadline: Deadline) -> str:
        """The life of the store (its incarnation) in which everybody who takes part is registered.

        What such a store calls free is free: whoever holds it would have said so in the same message as its rank.
        TimedOut names who is not registered.
        """
        roster, waiting = self._participants.roster, WaitingLog(log, deadline.timeout_s)
        while True:
            until = Deadline(waiting.due_in_s())
            with self._changed:
                while (incarnation := roster.shown_by) is None and not deadline.expired and not until.expired:
                    self._changed.wait(min(deadline.remaining_s(), until.remaining_s()))
                if incarnation is not None:
                    return incarnation
                ranks = roster.unheard
            so_far = f"ranks {ranks} have not registered there again" if ranks else "did not come back"
            if deadline.expired:
                raise TimedOut(f"{self._title}: the store was away, and {so_far} within {deadline.timeout_s:g} s")
            waiting.tell(f"{self._title}: the store was away, and {so_far}")  # under no lock: a logger may call us

    def miss(self, rank: int, reason: str) -> None:
        """Whoever waits for that rank waits in vain, says somebody else than our neighbours."""
        with self._changed:
            self._participants.missed(rank, reason)
            self._changed.notify_all()

    def refuse(self, rank: int, reason: str) -> None:
        """The process that has that rank is not let in: copies there, and whoever waits for it, are told why."""
        with self._changed:
            if self._participants.refused(rank, reason):
                self._memory.revoke(rank, reason)
                self._changed.notify_all()

    def meet_other_user(self, pid: int, reason: str) -> None:
        """A process of another user has connected, and may say nothing because it has seen who we are."""
        with self._changed:
            self._participants.met_other_user(pid, reason)
            self._refuse_other_users()

    def _refuse_other_users(self) -> None:
        """Under the lock."""
        for rank, reason in self._participants.refuse_other_users():
            self._memory.revoke(rank, reason)
            self._changed.notify_all()

    def call_off(self, failure: FabricError) -> None:
        """Calls of ours that wait for others end now, with that failure."""
        with self._changed:
            self._called_off = failure
            self._changed.notify_all()

    def resume(self) -> None:
        """Calls may wait again."""
        with self._lock:
            self._called_off = None

    def check_wanted(self) -> None:
        """Raises what the call was called off with."""
        with self._lock:
            self._check_wanted()

    def _check_wanted(self) -> None:
        if self._called_off is not None:
            raise self._called_off

    def expects(self, neighbour: Neighbour, *, even_if_called_off: bool = False) -> bool:
        """An asker's question: is an answer wanted, and does the store still show the one who owes it?"""
        with self._lock:
            called_off = self._called_off is not None and not even_if_called_off
            return not called_off and self._participants.shows(neighbour)

    # ---- ourselves -------------------------------------------------------------------------------------------------

    def begin(self, generation: int) -> Stamp:
        """We take part: neighbours that offer their memory are admitted."""
        with self._lock:
            return self._participants.begin(generation)

    def stop(self) -> None:
        """Nobody is admitted any more; who is there stays until `clear`."""
        with self._changed:
            self._participants.takes_part = False
            self._changed.notify_all()

    def clear(self) -> None:
        """We do not take part any more: everybody is gone for us, and nobody is missed."""
        with self._lock:
            self._carry_out(self._participants.clear())
            self._to_reach.clear()

    # ---- what is heard of others -----------------------------------------------------------------------------------

    def show(self, update: WatchUpdate, host: str | None = None) -> None:
        """What the store shows of all hosts, or of one (its key)."""
        facts, gone = join_fact.decode(update)
        known = self._participants
        with self._changed:
            self._to_reach.update(facts)
            if update.snapshot:
                self._carry_out(known.all_shown(facts, update.incarnation, clock.now(), host))
                if known.roster.waits_for_time:
                    self._node.exchange.request_tick()
            else:
                over = {rank: None for place, rank in gone if known.is_known_at(rank, place)}
                self._carry_out(known.shown({**over, **facts}))
            self._refuse_other_users()
            self._changed.notify_all()

    def is_proved(self, request: Request) -> bool | None:
        """Whether its sender is who it says; None while the store has not shown it."""
        with self._lock:
            return self._participants.is_proved(request.rank, request.instance, request.secret)

    def can_admit(self, rank: int) -> bool:
        """False while running copies are in the memory of that rank's predecessor: `admit` would wait for them."""
        return self._memory.is_drained(rank)

    def admit(self, share: Share, fds: Sequence[int], if_still: Callable[[], bool]) -> Stamp | None:
        """A neighbour shows its memory, which is mapped, as far as it is new. Our own stamp at that moment.

        None, and nothing has happened, when that is not wanted any more, as `if_still` says under the lock.
        """
        self._memory.drain(share.rank)  # its predecessor's memory; no lock is held while copies leave it
        with self._lock:
            if not if_still():
                return None
            self._memory.check(share, fds)
            effects = self._participants.attached(share.rank, Stamp(share.instance, share.generation))
            if effects is not None:
                self._attach(share, fds, effects)
            return self._participants.own_stamp

    def _attach(self, share: Share, fds: Sequence[int], effects: Sequence[Effect]) -> None:
        """Its predecessor goes first; it has come when its memory is mapped."""
        self._carry_out([effect for effect in effects if isinstance(effect, Left)])
        try:
            self._owner.take_enclosed(share.rank, fds[len(share.segments) :])
            self._take(share, fds[: len(share.segments)])
        except FabricError as failure:
            reason = f"its memory cannot be mapped here: {failure}"
            self._carry_out(self._participants.lost(share.instance, reason))
            raise
        self._carry_out([effect for effect in effects if isinstance(effect, Joined)])

    def _take(self, share: Share, fds: Sequence[int]) -> None:
        """A neighbour's memory, if it is mapped; otherwise it follows when the store shows this participation of it, as
        the memory of other hosts does."""
        fact = self._participants.facts.get(share.rank)
        is_shown = fact is not None and fact.stamp == Stamp(share.instance, share.generation)
        ucx = fact.ucx.end if fact is not None and is_shown else NOT_SHOWN
        route = self._owner.route(share.tag, share.op_type, ucx, same_host=True)
        if route.name == MAPPED_MEMORY:
            self._memory.map(share, fds)
        elif share.rank in self._routes and not is_shown:
            return  # a store that was away shows it soon: it stays as it is
        elif route.name == NONE:
            self._memory.revoke(share.rank, route.reason)
        self._routes[share.rank] = route

    def _reach_others(self) -> None:
        """The memory of ranks that is not mapped, as far as the store has shown something new of it."""
        known, present = self._participants, self._participants.roster.present
        for rank in list(self._to_reach):
            fact, is_distant = known.facts.get(rank), known.is_distant(rank)
            is_reached = is_distant or (rank in self._routes and self._routes[rank].name != MAPPED_MEMORY)
            if is_reached and fact is not None and present.get(rank) == fact.stamp:
                if not self._memory.is_drained(rank):
                    self._node.exchange.request_tick()  # running copies let go of its predecessor's memory soon
                    continue
                self._reach(rank, fact, same_host=not is_distant)
            self._to_reach.discard(rank)

    def _reach(self, rank: int, fact: JoinFact, *, same_host: bool) -> None:
        route = self._owner.route(fact.tag, fact.op_type, fact.ucx.end, same_host=same_host)
        sizes = {Tier.DRAM: fact.dram_bytes, Tier.HBM: fact.hbm_bytes}
        try:
            self._memory.check_layout(rank, fact.max_dram, fact.max_hbm)
            is_hidden = is_loopback(fact.data.address) and not is_loopback(self._node.data_address)
            if route.name == NETWORK and is_hidden:
                route = Route(NONE, NOT_FROM_HERE.format(rank=rank, address=fact.data.address))
            if route.name == NETWORK:
                route = self._secured(route, rank, fact.data)
            if route.name == NETWORK:
                self._memory.reach(rank, sizes, fact.data)
            if route.name == UCX:
                self._memory.reach_by_ucx(rank, sizes, fact.ucx)
        except FabricError as failure:
            route = Route(NONE, str(failure))
        if route.name == NONE:
            self._memory.revoke(rank, route.reason)
            log.warning("%s", f"rank {rank} cannot be reached: {route.reason}")
        self._routes[rank] = route

    def _secured(self, route: Route, rank: int, data: DataPlace) -> Route:
        """The same way, if both ends agree on how."""
        has_tls = self._node.data_tls.is_on
        if data.has_tls == has_tls:
            return encrypted(route) if has_tls else route
        one, other = (f"rank {rank}", "this process") if data.has_tls else ("this process", f"rank {rank}")
        return Route(NONE, f"{one} sends data with TLS only, {other} without; set MF_DATA_TLS to the same on all hosts")

    def withdrawn(self, rank: int, stamp: Stamp, reason: str) -> None:
        """A neighbour said that it leaves."""
        with self._lock:
            self._carry_out(self._participants.withdrawn(rank, stamp, reason))

    def lost(self, instance: int) -> None:
        """A neighbour's process is gone."""
        with self._lock:
            self._carry_out(self._participants.lost(instance, "its process died"))
            self._participants.forget_process(instance)

    def tick(self) -> bool:
        """Time passes; True while it decides something here."""
        with self._lock:
            drained = self._memory.collect()
            self._reach_others()
            return not drained or bool(self._to_reach) or self._participants.roster.waits_for_time

    def store_lost(self) -> None:
        """It is away: nobody is given up because it has not heard from them."""
        with self._lock:
            self._participants.roster.store_lost()

    def is_overdue(self) -> bool:
        """Whether somebody has not registered with the store in time, if that could hear it: see `give_up_unheard`."""
        with self._lock:
            return self._participants.roster.is_overdue(clock.now())

    def give_up_unheard(self) -> None:
        """The store serves, and has not heard from them in time."""
        with self._changed:
            self._carry_out(self._participants.tick(clock.now()))
            self._changed.notify_all()

    def wait_for_unheard(self) -> None:
        """The store did not serve."""
        with self._lock:
            self._participants.roster.wait_longer(clock.now())

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Under the lock."""
        gone = [effect for effect in effects if isinstance(effect, Left)]
        for left in gone:
            self._routes.pop(left.rank, None)
        if gone and not self._memory.let_go(gone):
            self._node.exchange.request_tick()  # running copies let go of it soon, and nobody waits for them
        self._to_reach.update(effect.rank for effect in effects if isinstance(effect, Joined))
        self._reach_others()  # before anybody is told that they have come
        if effects:
            self._changed.notify_all()
        for left in gone:
            self._owner.rank_gone(left.rank, farewell(left))
        for effect in effects:
            if isinstance(effect, Returned):
                self._reannounce()
                continue
            if isinstance(effect, Joined):
                self._owner.rank_back(effect.rank, self._participants.roster.present[effect.rank])
            self._node.notices.post(lambda effect=effect: self._owner.group_changed(effect))  # type: ignore[misc]
