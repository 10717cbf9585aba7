"""Rendezvous in etcd: everybody writes down that it is here, and follows what the others write.

An arrival is leased: it goes with whoever dies. Whoever gives up takes its arrival back first and then looks in the
events before that, whether the round was complete. So the order in etcd decides, and all agree. The last one to arrive
removes all arrivals of the round at once; that one's own is gone means that all of an earlier round are.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, FabricError, InvalidParam, NotStarted
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.etcd.feed import Feed, Subscription
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.complaints import Compacted
from memfabric_hybrid.store.etcd.names import rank_of
from memfabric_hybrid.store.etcd.round import Arrival, Round, decode
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.interface import MOMENT_S
from memfabric_hybrid.store.limits import shown

WITHDRAW_S = 0.5  # beyond the deadline, for etcd to confirm that our arrival is gone
MAX_MARKS = 256


class Place:
    """Of one call: where it writes, and since which revision it is there."""

    def __init__(self, scope: Scope, request: m.Gather) -> None:
        self.prefix = scope.names.round(request.group, request.round)
        self.claims = scope.names.ranks(request.group)
        self.name = self.prefix + b"%d" % request.rank
        self.revision = 0  # what the round was started with; later events count
        self.was_repeated = False  # we may have arrived twice, the first time in a round that is over

    def is_lost_by(self, events: list[api.Event]) -> bool:
        return any(event.kv.key == self.name and event.value is None for event in events)


class Gathering:
    def __init__(self, scope: Scope, feed: Feed) -> None:
        self._scope = scope
        self._feed = feed
        self._under_way: set[int] = set()  # calls of ours; other arrivals of ours are left from earlier ones
        self._marks: dict[tuple[str, int], bytes] = {}  # by group and rank: where we wrote that we gave up

    def gather(self, request: m.Gather, deadline: Deadline) -> m.Gathered:
        place, round = Place(self._scope, request), Round(request.group, request.round, request.size)
        self._under_way.add(request.call)
        try:
            with self._feed.subscribed(place.prefix, place.claims) as news:
                return m.Gathered(self._wait(request, place, round, news, deadline))
        finally:
            self._under_way.discard(request.call)

    def _wait(
        self, request: m.Gather, place: Place, round: Round, news: Subscription, deadline: Deadline
    ) -> list[bytes]:
        written_at = self._arrive(request, place, round, deadline, news.since)
        is_last = round.is_complete
        if not is_last:
            self._await_others(request, place, round, news, deadline)
        if is_last or place.was_repeated:
            self._clean_up(place, written_at, deadline)
        return round.parts

    def _await_others(
        self, request: m.Gather, place: Place, round: Round, news: Subscription, deadline: Deadline
    ) -> None:
        """Returns when the round is complete."""
        try:
            while not round.is_complete and round.lost is None:
                heard = news.next(deadline)
                if heard is None:
                    break
                if heard.is_gap:
                    self._arrive(request, place, round, deadline, None)
                elif heard.revision > place.revision:
                    _follow(round, place, heard.events)
                    if place.is_lost_by(heard.events) and not round.is_complete:
                        # It went with our lease, which is new.
                        self._arrive(request, place, round, deadline, heard.revision)
        except NotStarted:
            raise  # the lease ends with us, and the arrival with the lease
        except BaseException:
            self._take_back_quietly(place)
            raise
        if not round.is_complete:
            self._withdraw(request, place, round, news)
        if not round.is_complete:
            raise round.failure(deadline.timeout_s)

    def _arrive(self, request: m.Gather, place: Place, round: Round, deadline: Deadline, since: int | None) -> int:
        """Writes that we are here, if that is not written yet, and reads who else is; the revision of that.

        An endpoint may be lost with this: then it may have been written twice, and the round may have been completed
        and cleaned up in between. So the round is followed from `since` on, if that is known: the events after it come.
        """
        scope, value = self._scope, _encoded(request, gave_up=False)
        new, look = api.put(place.name, value, scope.lease), api.read(api.of_prefix(place.prefix))
        claims = api.read(api.of_prefix(place.claims))
        mark = self._marks.pop((request.group, request.rank), place.name)
        tidy = [] if mark == place.name else [api.delete(api.of_key(mark))]
        compare, fence = api.is_absent(place.name), scope.fence
        arrivals: list[api.KeyValue] = []
        while True:
            outcome = scope.transact([compare], [new, look, claims, *tidy], [look, claims], deadline)
            arrivals = outcome.found(1 if outcome.succeeded else 0)
            if not outcome.succeeded:
                own = next((kv for kv in arrivals if kv.key == place.name), None)
                self._check_size(request, arrivals)
                compare = api.is_absent(place.name) if own is None else self._may_replace(request, own)
                scope.check_time(deadline, f"gather {shown(request.group)} round {request.round}")
                if own is None or _decoded(own).gave_up or _decoded(own).call != request.call:
                    continue
            place.revision = outcome.header.revision
            break
        try:
            self._check_size(request, arrivals)
        except InvalidParam:
            self._take_back_quietly(place)
            raise
        claimed = outcome.found(2 if outcome.succeeded else 1)
        if scope.fence != fence and since:
            place.was_repeated = True
            with suppress(Compacted):  # then the round is taken as it is now
                arrivals, claimed = self._look_back(place, since, deadline)
                place.revision = since
        round.start({rank_of(kv.key): _decoded(kv) for kv in arrivals}, {rank_of(kv.key) for kv in claimed})
        return outcome.header.revision

    def _look_back(
        self, place: Place, revision: int, deadline: Deadline
    ) -> tuple[list[api.KeyValue], list[api.KeyValue]]:
        """Arrivals and claims as they were then."""
        look = [api.read(api.of_prefix_then(prefix, revision)) for prefix in (place.prefix, place.claims)]
        outcome = self._scope.gateway.ask(api.TXN, api.transaction([], look, []), api.Outcome, deadline)
        return outcome.found(0), outcome.found(1)

    def _may_replace(self, request: m.Gather, own: api.KeyValue) -> api.Body:
        """What stands where we want to write: a mark, or what an earlier call of ours left. Duplicated: a rank."""
        arrival = _decoded(own)
        is_left = own.lease == self._scope.lease and arrival.call not in self._under_way
        is_ours = own.lease == self._scope.lease and arrival.call == request.call
        if not (arrival.gave_up or is_left or is_ours):
            raise Duplicated(
                f"gather {shown(request.group)} round {request.round}: rank {request.rank} has arrived already"
            )
        return api.is_unchanged(own.key, own.mod_revision)

    def _check_size(self, request: m.Gather, arrivals: list[api.KeyValue]) -> None:
        """The first one to arrive says how many there are."""
        here = [kv for kv in arrivals if not _decoded(kv).gave_up]
        first = min(here, key=lambda kv: kv.mod_revision, default=None)
        if first is not None and _decoded(first).size != request.size:
            raise InvalidParam(
                f"gather {shown(request.group)} round {request.round}: rank {request.rank} says {request.size} ranks, "
                f"those before it said {_decoded(first).size}"
            )

    def _clean_up(self, place: Place, revision: int, deadline: Deadline) -> None:
        """All arrivals of the complete round, at once, before anybody can come to it again."""
        unchanged = api.has_nothing_newer(place.prefix, revision)
        gone = api.delete(api.of_prefix(place.prefix))
        with suppress(FabricError):  # it is complete all the same, and what is left goes with the leases
            self._scope.transact([unchanged], [gone], [], Deadline(max(WITHDRAW_S, deadline.remaining_s())))

    def _withdraw(self, request: m.Gather, place: Place, round: Round, news: Subscription) -> None:
        """Our arrival is taken back; until that is seen in the events, others may have completed the round with us."""
        patience = Deadline(WITHDRAW_S)
        if round.lost is None:
            change = api.put(place.name, _encoded(request, gave_up=True), self._scope.lease)
            if len(self._marks) < MAX_MARKS:
                self._marks[request.group, request.rank] = place.name
        else:
            change = api.delete(api.of_key(place.name))
        ours = [api.is_leased(place.name, self._scope.lease)]
        try:
            self._scope.transact(ours, [change], [], patience)
        except FabricError:  # etcd is away: nobody can arrive there either
            return
        while not round.is_complete:
            heard = news.next(patience)
            if heard is None or heard.is_gap:
                return
            if heard.revision > place.revision:
                if any(event.kv.key == place.name for event in heard.events):
                    return
                _follow(round, place, heard.events)

    def _take_back_quietly(self, place: Place) -> None:
        ours = [api.is_leased(place.name, self._scope.lease)]
        with suppress(FabricError):  # another failure is on its way to the caller
            self._scope.transact(ours, [api.delete(api.of_key(place.name))], [], Deadline(MOMENT_S))


def _follow(round: Round, place: Place, events: list[api.Event]) -> None:
    for event in events:
        rank = rank_of(event.kv.key)
        if event.kv.key.startswith(place.prefix):
            round.changed(rank, decode(event.value))
        elif event.value is None:
            round.claim_ended(rank)
        else:
            round.claimed(rank)


def _encoded(request: m.Gather, *, gave_up: bool) -> bytes:
    return msgspec.msgpack.encode(Arrival(request.size, request.call, gave_up, b"" if gave_up else request.data))


def _decoded(kv: api.KeyValue) -> Arrival:
    arrival = decode(kv.value)
    assert arrival is not None
    return arrival
