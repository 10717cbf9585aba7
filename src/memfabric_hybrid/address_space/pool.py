"""One object's life in this process: join, leave, extend and destroy, and what befalls it meanwhile.

Both Big Memory and Share Memory stand on this. Who takes part is the `group`'s business, what is said to neighbours the
share protocol's, what the store shows the publication's; here is when.

Locks, outermost first:
`_changes` gives turns to join, leave, extend and re-announce, in which the store and the neighbours are talked to.
`_lock` guards whether the object is joining or destroyed, and with it whether its space is open; for moments only.
The group's is taken inside of it; the exchange's and the store's threads take that one alone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from memfabric_hybrid import _native, clock, logs, settings
from memfabric_hybrid.address_space.changes import Changes
from memfabric_hybrid.address_space.exchange import Wait
from memfabric_hybrid.address_space.group import Group
from memfabric_hybrid.address_space.join_fact import DataPlace
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.messages import Answer, Request
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.participants import Participants
from memfabric_hybrid.address_space.peer_memory import PeerMemory
from memfabric_hybrid.address_space.pool_owner import PoolOwner
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.publication import Publication
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.address_space.share_protocol import ShareProtocol
from memfabric_hybrid.address_space.ucx_memory import UcxMemory
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code, FabricError, InvalidParam, NoResources, NotConnected, NotStarted, Unreachable
from memfabric_hybrid.machine.peer_credentials import OtherUser
from memfabric_hybrid.membership.roster import Roster
from memfabric_hybrid.store import FAREWELL_S, MOMENT_S, Refusal, WatchUpdate
from memfabric_hybrid.transports.routes import Route, is_rdma_demanded
from memfabric_hybrid.transports.ucx_offer import UcxOffer
from memfabric_hybrid.waiting_log import WaitingLog

log = logs.get(__name__)
REANNOUNCE_PAUSE_S = 1.0
MOST_SOUGHT = 64  # ranks that are waited for one by one; whoever waits for more is told of all
CATCH_UP_S = 2.0  # how long a copy waits for the store before it fails with what was known
NO_UCX = UcxOffer()
_generations = itertools.count(1)  # of the process: an object that is made anew must not repeat an earlier one's


class Pool:
    """`space` is the native range, already reserved and holding `own`, our memory; owns both from now on."""

    def __init__(
        self,
        node: Node,
        spec: PoolSpec,
        space: _native.Space,
        own: OwnMemory,
        owner: PoolOwner,
        ucx: UcxOffer = NO_UCX,
    ) -> None:
        member, roster = node.member, Roster(node.member.rank, settings.heartbeat_timeout_s())
        known = Participants(member.rank, member.instance, member.host, spec.layout.capacity, roster)
        self.spec = spec
        self.group = Group(
            node, known, PeerMemory(spec, space, node.data_tls.identity, ucx.context), owner, self._reannounce_soon
        )
        self.destroyed = False
        self.abandoned = False  # in a forked child: the parent's, not ours
        self._node = node
        self._space = space
        self._own = own
        self._owner = owner
        self._protocol = ShareProtocol(node, spec, own, self.group)
        self._ucx_memory = UcxMemory(spec.title, space, ucx, is_demanded=is_rdma_demanded(spec.op_type))
        data = DataPlace(node.data_address, *space._serve(), has_tls=node.data_tls.is_on)
        self._publication = Publication(member, spec, own, data, self._ucx_memory)
        self._changes = Changes(spec.title)
        self._lock = threading.Lock()
        self._joining = False
        self._evicted: str | None = None  # why, for good: no join may open the space again
        self._asks_store = False  # about those who have not registered there again
        self._reannounce_at: float | None = None  # when neighbours that could not take our share are asked again
        node.add(self)
        space._set_catch_up(self.catch_up, not spec.follows_all)

    @property
    def joined(self) -> bool:
        return self._publication.is_watching

    # ---- the program's calls ---------------------------------------------------------------------------------------

    def join(self, deadline: Deadline) -> None:
        """Takes part. Returns when everybody of this host who was there before has our memory mapped, and we theirs.
        Other hosts have learned of us, or will before they need it.

        Whoever destroys or leaves the object meanwhile ends it: InvalidParam or NotStarted.
        """
        with self._changes.turn(deadline):
            if self.joined:
                return
            self._node.check_serving()
            with self._lock:
                self._check_not_evicted()
                if not self.destroyed:  # a `leave` that came too late for an earlier join
                    self.group.resume()
                self._joining = True
            try:
                stamp = self.group.begin(next(_generations))
                self.group.check_wanted()
                self._space._expose()
                self._publication.publish(stamp, deadline)
                self.group.check_wanted()
                self._publication.watch(self._on_update, deadline)
                self._protocol.offer(deadline)
                with self._lock:
                    self.group.check_wanted()
                    self._check_not_evicted()
                    self._joining = False
                    self._space._open()
            except BaseException:
                self._retire(Deadline(MOMENT_S if self._node.store_is_away else FAREWELL_S))
                raise
            finally:
                self._joining = False

    def leave(self, deadline: Deadline, reason: str = "") -> None:
        """Stops taking part. Returns when nobody touches our memory any more. Neighbours are told the reason."""
        with self._lock:
            interrupts = self._joining
            if interrupts:
                self.group.call_off(NotStarted(f"{self.spec.title} was left while join() was under way"))
        with self._changes.turn(deadline):
            if not self.joined:
                if interrupts:
                    return
                raise NotStarted(f"{self.spec.title} has not joined; there is nothing to leave")
            with self._lock:
                if not self.destroyed:
                    self.group.resume()
            self._space._shut(int(Code.NOT_STARTED), f"{self.spec.title} has left: call join() before copying")
            self._retire(deadline, reason)

    def extend(self, tier: Tier, size_bytes: int, placement: Placement, deadline: Deadline) -> None:
        """Adds memory behind what we have; neighbours can use it when this returns.

        If it fails because of them, the memory is there nevertheless: none is added to offer it again.
        """
        with self._changes.turn(deadline):
            if size_bytes:
                self._own.extend(tier, size_bytes, placement)
            if self.joined:
                self._protocol.offer(deadline)
                self.group.check_wanted()
                self._publication.publish(self.group.own_stamp(), deadline)

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
                self.group.call_off(InvalidParam(sentence))
                self._space._shut(int(Code.INVALID_PARAM), sentence)
        self._changes.end(deadline, lambda: self._end(deadline, reason))

    def _end(self, deadline: Deadline, reason: str) -> None:
        """The last turn. Calls of others are called off; this one waits until neighbours have let go."""
        try:
            if self.joined:
                self._retire(deadline, reason, even_if_called_off=True)
        finally:
            self._node.remove(self)
            self._space._close()
            self._own.close()
        with suppress(FabricError):  # a store that is away forgets us by itself, or has done so already
            self._node.member.store.release_range(self.spec.name, deadline=deadline.extended(MOMENT_S))

    def _retire(self, deadline: Deadline, reason: str = "", *, even_if_called_off: bool = False) -> None:
        """Undoes `join`, also a half-done one. Neighbours hear it from us, with the reason, before the store tells.

        In this order: the watch tells whom not to wait for, and others begin nothing new when our memory is concealed.
        """
        try:
            self._protocol.withdraw(deadline, reason, even_if_called_off=even_if_called_off)
            self._publication.retract(deadline)
        finally:
            self._ucx_memory.conceal()
        self.group.clear()

    # ---- news ------------------------------------------------------------------------------------------------------

    def catch_up(self, ranks: Iterable[int]) -> None:
        """A copy has met ranks that may have come or grown (any thread): returns when we know what the store knows."""
        if self._node.store_is_away or not self.joined:
            raise NotConnected(f"{self.spec.title}: the store cannot be asked")
        self.seek(ranks, Deadline(CATCH_UP_S))

    def seek(self, ranks: Iterable[int], deadline: Deadline) -> None:
        """Returns when all that the store knew of these at the call is known here, and done."""
        self._publication.seek(ranks, deadline)

    @property
    def follows_all(self) -> bool:
        """What we know of ranks that are not here is what the store knows, but for news that are under way."""
        return self.spec.follows_all or self._publication.follows(None)

    def follow_all(self, deadline: Deadline) -> None:
        """We hear of every rank, wherever it is, from now on and after every later `join`."""
        self._publication.follow_all(deadline)

    def wait_for(self, ranks: frozenset[int], deadline: Deadline) -> None:
        """As `Group.wait_for`, also for ranks of hosts that we do not follow yet."""
        if len(ranks) > MOST_SOUGHT:
            self.follow_all(deadline)
        missing = self.group.missing_of(ranks)
        if not missing or self.follows_all:
            self.group.wait_for(ranks, deadline)
            return
        claims_changed, waiting = threading.Event(), WaitingLog(log, deadline.timeout_s)
        with ExitStack() as watches:
            for rank in missing:
                news = partial(self._nudge, claims_changed)
                watches.callback(self._node.member.watch_rank(rank, news, deadline).close)
            is_here = False
            while not is_here:
                claims_changed.clear()
                self.seek(missing, deadline)
                is_here = self.group.wait_for(ranks, deadline, unless=claims_changed.is_set, waiting=waiting)

    def _nudge(self, claims_changed: threading.Event) -> None:
        claims_changed.set()
        self.group.nudge()

    def route(self, rank: int) -> Route:
        """As `Group.route`, also to a rank that we have not heard of yet."""
        try:
            return self.group.route(rank)
        except NotConnected:
            if self.follows_all:
                raise
            self.catch_up([rank])
            return self.group.route(rank)

    # ---- after a silence -------------------------------------------------------------------------------------------

    def _reannounce_soon(self) -> None:
        """Any thread."""
        self._node.reannouncements.post(self.reannounce)

    def reannounce(self) -> None:
        """After our session was lost for a while (re-announcing thread): neighbours may have dropped us."""
        deadline = Deadline(settings.heartbeat_timeout_s())
        self._reannounce_at = None
        try:
            with self._changes.turn(deadline):
                if self.joined and self._evicted is None:
                    self._protocol.offer(deadline)
        except (Unreachable, NoResources) as failure:
            log.warning("%s: could not be offered again, which is tried anew soon: %s", self.spec.title, failure)
            self._reannounce_at = clock.now() + REANNOUNCE_PAUSE_S
            self._node.exchange.request_tick()
        except InvalidParam:
            if not self.destroyed:
                raise

    def _waits_to_reannounce(self) -> bool:
        at = self._reannounce_at
        if at is not None and clock.now() >= at:
            self._reannounce_at = at = None
            self._reannounce_soon()
        return at is not None

    def evict(self, reason: str) -> None:
        """Our rank was given to somebody else, or we cannot see the others any more: no copy may pretend otherwise."""
        with self._lock:
            self._evicted = reason
            self._space._shut(int(Code.NOT_CONNECTED), f"{self.spec.title}: {reason}")
        self._space._conceal()
        self._owner.rank_gone(self._node.member.rank, reason)
        log.error("%s: %s", self.spec.title, reason)

    def _check_not_evicted(self) -> None:
        """Under the lock."""
        if self._evicted is not None:
            raise NotConnected(
                f"{self.spec.title}: {self._evicted}; destroy it, and create it in a process that is a member"
            )

    # ---- reports, each on the thread of whoever reports ------------------------------------------------------------

    def handle(
        self, request: Request, enclosed: Sequence[int], other_user: OtherUser | None = None
    ) -> tuple[Answer, Sequence[int]] | Wait:
        """A neighbour's request (exchange thread), as `ShareProtocol.answer`."""
        return self._protocol.answer(request, enclosed, other_user)

    def on_lost(self, instance: int) -> None:
        """A neighbour's process is gone (exchange thread, or who asked it)."""
        self.group.lost(instance)

    def on_tick(self) -> bool:
        """Exchange thread; True while time decides something here."""
        if self.group.is_overdue() and not self._asks_store:
            self._asks_store = True
            self._node.reannouncements.post(self._decide_unheard)
        wanted = [self.group.tick(), self._waits_to_reannounce()]  # both, whatever the first one says
        return any(wanted)

    def on_store_lost(self) -> None:
        """Store's event thread."""
        self.group.store_lost()

    def _decide_unheard(self) -> None:
        """Whoever has not registered with a store that was away is gone (re-announcing thread), if the store could hear
        it. One that stands still, or is slow, has heard nobody.
        """
        try:
            self._publication.catch_up(Deadline(settings.heartbeat_timeout_s() / 2))
        except FabricError:
            self.group.wait_for_unheard()
        else:
            self.group.give_up_unheard()
        finally:
            self._asks_store = False
            self._node.exchange.request_tick()

    def on_refused(self, refusals: Sequence[Refusal]) -> None:
        """What the store would not take back after it was away (store's event thread): whose was it?"""
        ours = {self.spec.name, self._publication.key}
        reasons = [one.sentence for one in refusals if one.kind == "rank" or one.name in ours]
        if reasons:
            self.evict(f"this process was declared dead and lost its rank: {'; '.join(reasons)}")
        self._owner.keys_refused([one for one in refusals if one.kind == "key" and one.name not in ours])

    def _on_update(self, update: WatchUpdate, host: str | None) -> None:
        """What the store shows of all hosts, or of one (store's event thread)."""
        self.group.show(update, host)
        if update.snapshot and self._publication.follows(host):  # not the first one: the store was away
            self._reannounce_soon()  # newcomers may not know us
        if self._node.exchange.awaits_news:
            self._node.exchange.request_tick()
