"""The store on etcd: every call is a transaction there, made by the calling thread; events come on their own thread."""

from __future__ import annotations

import secrets

from memfabric_hybrid import _native, clock, settings
from memfabric_hybrid._native import Heartbeat
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NoResources, NotExist, TimedOut
from memfabric_hybrid.logs import get as get_log
from memfabric_hybrid.machine.service_thread import THREAD_ENDS_S
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store import store_users
from memfabric_hybrid.store.client.connection import AnswerLate, ConnectionLost
from memfabric_hybrid.store.client.event_channel import HeartbeatFactory
from memfabric_hybrid.store.client.session_records import GRANTING
from memfabric_hybrid.store.client.watch_callbacks import WatchRegistration
from memfabric_hybrid.store.etcd import lease
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.complaints import LeaseGone
from memfabric_hybrid.store.etcd.gateway.endpoints import Endpoints
from memfabric_hybrid.store.etcd.gateway.gateway import Gateway
from memfabric_hybrid.store.etcd.gathering import Gathering
from memfabric_hybrid.store.etcd.incarnation import wait_for_recovery
from memfabric_hybrid.store.etcd.key_requests import KeyRequests
from memfabric_hybrid.store.etcd.range_requests import RangeRequests
from memfabric_hybrid.store.etcd.rank_requests import RankRequests
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.etcd.session import Session
from memfabric_hybrid.store.interface import FAREWELL_S, MOMENT_S, SessionCallback, Watch, WatchCallback
from memfabric_hybrid.store.limits import MAX_EPHEMERAL_BYTES, SESSION_ID_BYTES, check_prefix, shown
from memfabric_hybrid.store.participant import Participant
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection.protection import ProtectionSource
from memfabric_hybrid.store.url import StoreUrl, parse_url

ANSWER_GRACE_S = 0.5  # for a look that is due even if nobody waits

_log = get_log(__name__)


class EtcdStore(Participant):
    """Connects on first use. `on_session` and watch callbacks run on the event thread."""

    max_ephemeral_bytes = (
        MAX_EPHEMERAL_BYTES  # the limit of our own server, too: all must be written again after a loss
    )

    def __init__(
        self,
        url: StoreUrl | str,
        *,
        on_session: SessionCallback | None = None,
        session: bytes | None = None,
        heartbeat_timeout_s: float | None = None,
        heartbeat_factory: HeartbeatFactory = Heartbeat,
        protection: ProtectionSource = protections.configured,
    ) -> None:
        super().__init__()
        parsed = parse_url(url) if isinstance(url, str) else url
        timeout_s = settings.heartbeat_timeout_s() if heartbeat_timeout_s is None else heartbeat_timeout_s
        self._endpoints = Endpoints(parsed, protection)
        self._gateway = Gateway(self._endpoints)
        self._scope = Scope(self._gateway, session or secrets.token_bytes(SESSION_ID_BYTES))
        self._session = Session(self._scope, timeout_s, heartbeat_factory, on_session)
        self._keys, self._ranks = KeyRequests(self._scope), RankRequests(self._scope)
        self._ranges, self._gathering = RangeRequests(self._scope), Gathering(self._scope, self._session.feed)
        self._doubted_after_s = 0.5 * timeout_s  # of an answer: this process may have stood still meanwhile
        self._closed = False
        self._farewell: Deadline | None = None

    @property
    def url(self) -> StoreUrl:
        return self._endpoints.url

    def peer_name(self, *, deadline: Deadline) -> str:
        """After the cluster, which keeps its number when it is restarted and even when it loses its data."""
        found = self._gateway.ask(api.RANGE, api.of_key(self._scope.names.incarnation), api.Found, deadline)
        return f"etcd-{found.header.cluster_id:x}#{self.url.instance}"

    def watch(self, prefix: str, callback: WatchCallback, *, deadline: Deadline) -> Watch:
        check_prefix(prefix)
        number, registration = next(self._numbers), WatchRegistration(prefix, callback)
        self._session.ready(deadline)
        self._session.watch_callbacks.add(number, registration)
        try:
            self._session.state.check_serving()
            self._session.start_watch(number)
            if not registration.has_snapshot.wait(deadline.remaining_s()):
                raise TimedOut(f"store {self.url}: no snapshot of prefix {prefix!r} within {deadline.timeout_s:g} s")
            if registration.given_up:
                self._session.state.check_serving()
        except BaseException:
            self._session.watch_callbacks.remove(number)
            raise
        return _EtcdWatch(self._session, number)

    def update_url(self, url: StoreUrl) -> None:
        if url == self.url:
            return
        moved_from = self.url
        self._endpoints.point_at(url)
        _log.info("store %s has moved to %s", moved_from, url)
        self._scope.rename()
        self._gateway.abort_elsewhere()
        self._session.renew()

    def give_up(self) -> None:
        self._endpoints.close()
        self._gateway.close()
        self._session.give_up()

    def hurry(self, farewell: Deadline) -> None:
        self._farewell = farewell

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        store_users.leave(self)
        self._session.retire()
        if self._session.has_begun:
            self._say_goodbye()
        self._endpoints.close()
        self._gateway.close()
        self._session.close(Deadline(max(THREAD_ENDS_S, self._last_words().remaining_s())))
        self._gateway.close()

    def abandon_after_fork(self) -> None:
        """Closes our copies of the sockets; the parent goes on with its own."""
        self._endpoints.abandon_after_fork()
        self._gateway.abandon_after_fork()
        self._session.abandon_after_fork()
        self._closed = True

    def _say_goodbye(self) -> None:
        """Also after `give_up`, when the ways that all calls use are closed."""
        farewell = Scope(Gateway(Endpoints(self.url, self._endpoints.protection)), b"")
        farewell.lease = self._scope.lease
        try:
            lease.revoke(farewell, self._last_words().at)
        except (ConnectionLost, AnswerLate, FabricError) as error:
            _log.info("store %s was not told goodbye, our lease ends by itself: %s", self.url, error)
        finally:
            farewell.gateway.close()

    def _last_words(self) -> Deadline:
        farewell = self._farewell
        return Deadline(FAREWELL_S) if farewell is None else farewell.extended(MOMENT_S)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _ask(self, request: m.Request, deadline: Deadline, incarnation: str | None = None) -> m.ServerMessage:
        """As `StoreClient` does it: what is bound to the session is done under it, and remembered."""
        session = self._session
        if isinstance(request, (m.Wait, m.Gather)):
            return self._wait_for(request, deadline)
        if not session.state.records.concern(request):
            return self._do(request, deadline, incarnation, None)
        self._check_affordable(request)
        claim = session.state.records.claim_of(request.key) if isinstance(request, m.Delete) else None
        held = session.state.give_back(request)
        while True:
            generation, asked_at = session.ready(deadline), clock.now()
            try:
                reply = self._do(request, deadline, incarnation, claim)
                if type(request) in GRANTING:
                    _native._pause_point("store.answered")
                    self._check_lease_since(asked_at, deadline)
            except LeaseGone:
                session.renew(generation)
                continue
            except NotExist:
                if not held:
                    raise
                reply = m.Done(0)  # released by a repetition of this request, or lost with etcd: gone, as wanted
            if session.state.record(generation, request, reply):
                return reply

    def _check_lease_since(self, asked_at: float, deadline: Deadline) -> None:
        """LeaseGone: whoever was silent for that long has lost what the answer gave."""
        if clock.now() - asked_at > self._doubted_after_s and not lease.is_held(self._scope, deadline):
            raise LeaseGone("the answer came late")

    def _do(
        self, request: m.Request, deadline: Deadline, incarnation: str | None, claim: m.RestoredClaim | None
    ) -> m.ServerMessage:
        match request:
            case m.Get():
                return m.Value(self._keys.get(request.key, deadline))
            case m.Set():
                return self._keys.set(request, self._is_claim(request.key), deadline)
            case m.Delete():
                return m.Flag(self._keys.delete(request.key, claim, deadline))
            case m.CompareAndSet():
                return self._keys.compare_and_set(request, self._is_claim(request.key), deadline, incarnation)
            case m.Add():
                return self._keys.add(request, deadline)
            case m.Append():
                return self._keys.append(request, deadline)
            case m.ReadPrefix():
                return self._keys.read_prefix(request.prefix, deadline)
            case m.ClaimRank():
                return m.Number(self._claim(request, deadline))
            case m.FreeRanks():
                return m.Ranks(self._ranks.free(request, deadline))
            case m.ReleaseRank():
                return self._ranks.release(request.group, request.rank, deadline)
            case m.HoldRange():
                return m.Number(self._ranges.hold(request, deadline))
            case m.ReleaseRange():
                return self._ranges.release(request.name, deadline)
        raise FabricError(f"an etcd store does not know {type(request).__name__}")

    def _claim(self, request: m.ClaimRank, deadline: Deadline) -> int:
        wait_for_recovery(self._scope, self._session.feed, request.group, deadline)
        return self._ranks.claim(request, request.wanted, request.excluded, deadline)

    def _wait_for(self, request: m.Wait | m.Gather, deadline: Deadline) -> m.ServerMessage:
        """An arrival needs the lease, and whoever waits needs the events."""
        if isinstance(request, m.Wait):
            value = self._keys.get(request.key, Deadline(max(deadline.remaining_s(), ANSWER_GRACE_S)))
            if value is not None or deadline.expired:
                return _there(request.key, value, deadline)
        while True:
            generation = self._session.ready(deadline)
            try:
                if isinstance(request, m.Gather):
                    return self._gathering.gather(request, deadline)
                return m.Value(self._wait_for_key(request.key, deadline))
            except LeaseGone:
                self._session.renew(generation)

    def _wait_for_key(self, key: str, deadline: Deadline) -> bytes:
        name = self._scope.names.key(key)
        with self._session.feed.subscribed(name) as news:
            value = self._keys.get(key, deadline)
            while value is None:
                heard = news.next(deadline)
                if heard is None:
                    _there(key, None, deadline)
                elif heard.is_gap:
                    value = self._keys.get(key, deadline)
                else:
                    value = next((event.value for event in heard.events if event.kv.key == name), None)
            return value

    def _is_claim(self, key: str) -> bool:
        return self._session.state.records.claim_of(key) is not None

    def _check_affordable(self, request: m.Request) -> None:
        if not isinstance(request, (m.Set, m.CompareAndSet)):
            return
        key, value = request.key, request.value
        total_bytes = self._session.state.records.owned_bytes(key) + _size_bytes(key, value)
        if total_bytes > self.max_ephemeral_bytes:
            raise NoResources(
                f"ephemeral key {shown(key)}: the ephemeral keys of this member would hold {total_bytes} bytes, "
                f"allowed are {self.max_ephemeral_bytes}"
            )


def _there(key: str, value: bytes | None, deadline: Deadline) -> m.Value:
    if value is None:
        raise TimedOut(f"key {shown(key)} was not set within {deadline.timeout_s:.2f} s")
    return m.Value(value)


class _EtcdWatch(Watch):
    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._number = number

    def close(self) -> None:
        self._session.watch_callbacks.remove(self._number)


def _size_bytes(key: str, value: bytes) -> int:
    return len(value) + 4 * len(key) + 64
