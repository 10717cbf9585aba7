"""Reaching the store: one attempt, the pauses between attempts, and the sentence when all were in vain."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from memfabric_hybrid import clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import (
    FabricError,
    InvalidParam,
    Misuse,
    NotConnected,
    NotStarted,
    ResourceInUse,
    TimedOut,
    failure_of,
    resource_failure,
)
from memfabric_hybrid.machine import callbacks, signal_handlers
from memfabric_hybrid.machine.file_descriptors import open_socket
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.connection import AnswerLate, Connection, ConnectionLost, NoStore, NotAdmitted
from memfabric_hybrid.store.client.greeting import AnswerWait, greet, new_nonce
from memfabric_hybrid.store.client.tls_socket import TlsSocket
from memfabric_hybrid.store.local_socket import connect_local
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection.protection import Protection, ProtectionSource
from memfabric_hybrid.store.url import NO_PORT, StoreUrl, check_is_tcp
from memfabric_hybrid.waiting_log import WaitingLog

FIRST_PAUSE_S, LONGEST_PAUSE_S, PAUSE_GROWTH = 0.02, 0.25, 1.6
CONNECT_TIMEOUT_S = 5.0  # of one attempt
# The same for who returns. The kernel waits 1 s, 2 s, 4 s ... between its calls, also when the network is whole again
# meanwhile, and others wait for us for one heartbeat time-out only: a new attempt calls at once.
RETURN_TIMEOUT_S = 1.0
NO_ANSWER = "no answer"

_log = logs.get(__name__)


def pauses_s() -> Iterator[float]:
    """Between attempts: none before the second, then growing."""
    yield 0.0
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(pause_s * PAUSE_GROWTH, LONGEST_PAUSE_S)


class KnownStore(NamedTuple):
    """A store that was met at its address; its local socket may be open to us."""

    url: StoreUrl
    incarnation: str
    peer_name: str
    local_key: bytes = b""  # of a protected store: what it wants to hear at its local socket


class Dialer:
    """Shared by the threads of one client. `before_reconnect` runs before every attempt that follows a failure."""

    def __init__(
        self,
        url: StoreUrl,
        session: bytes,
        heartbeat_timeout_s: float,
        before_reconnect: Callable[[], object] | None,
        protection: ProtectionSource = protections.configured,
    ) -> None:
        self.closing = threading.Event()
        self._session = session
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._before_reconnect = before_reconnect
        self._protection = protection
        self._hook_lock = threading.Lock()  # two threads must not try to start the same server
        self._trouble = False  # the last attempt failed, or a connection was lost since it succeeded
        self._dialing: dict[socket.socket, StoreUrl] = {}  # where each is to lead
        self._met: KnownStore | None = None
        self._useless_local = ""  # the store whose local socket is of no use, as the log has said
        self.returning = False  # the session was lost, and is about to be restored
        self._numbers = itertools.count(1)
        self._given_up: set[int] = set()  # connections of which the store is told in the next greeting
        self.point_at(url)

    def point_at(self, url: StoreUrl) -> None:
        check_is_tcp(url)
        if url.port == NO_PORT:
            raise InvalidParam(f"store URL {url}: this client needs tcp://host:port or tcp6://[address]:port")
        self.url = url

    def dial(self, role: int, deadline: Deadline) -> Connection:
        """Tries until the deadline, then TimedOut. NotStarted when the client closes meanwhile."""
        attempts = 0
        reason = ""  # not the exception: it would keep this frame, and all its callers', alive
        waiting = WaitingLog(_log, deadline.timeout_s)
        for pause_s in pauses_s():
            attempts += 1
            had_s = deadline.remaining_s()
            try:
                return self.attempt(role, deadline.at, waiting=waiting)
            except (ConnectionLost, AnswerLate) as error:
                # An attempt that had hardly any time says less than the one before.
                is_cut_short = isinstance(error, AnswerLate) and had_s < LONGEST_PAUSE_S
                reason = reason if reason and is_cut_short else str(error)
                if isinstance(error, NoStore) and self._met is None:
                    raise ResourceInUse(
                        f"store address {self.url} is taken by something that is no store: {reason}; "
                        "choose another port or stop that server"
                    ) from None
                if isinstance(error, NotAdmitted) and self._met is None:
                    raise self.not_admitted(reason) from None
            waiting.tell(f"store {self.url} is not there: {reason or NO_ANSWER}")
            if self.closing.wait(min(pause_s, deadline.remaining_s())):
                raise NotStarted(f"the client of store {self.url} is closed")
            if deadline.expired:
                break
        raise self.unreachable(deadline.timeout_s, attempts, reason)

    def unreachable(self, timeout_s: float, attempts: int, reason: str) -> FabricError:
        return TimedOut(
            f"store {self.url} could not be reached within {timeout_s:g} s: tried {attempts} times, "
            f"last error: {reason or NO_ANSWER}; check that it runs and that the address is right"
        )

    def not_admitted(self, reason: str) -> FabricError:
        return NotConnected(f"store {self.url} and this process do not trust each other: {reason}")

    def refusal(self, error: Exception) -> FabricError | None:
        """What to tell whoever waits for a first contact, if further attempts will not do better."""
        if isinstance(error, Misuse):
            return failure_of(error.code, str(error))
        return self.not_admitted(str(error)) if isinstance(error, NotAdmitted) else None

    def attempt(
        self, role: int, until: float, *, with_hook: bool = True, waiting: WaitingLog | None = None
    ) -> Connection:
        """Connect and greet, once. ConnectionLost or AnswerLate when it does not work."""
        if self._trouble and with_hook:
            self._call_hook()
        self._trouble = True
        protection = self._protection()
        connection = self._at_local_socket(protection, until) if role == m.REQUESTS else None
        if connection is None:
            connection = self._at_address(role, protection, AnswerWait(until, waiting))
            if role == m.REQUESTS and (local := self._at_local_socket(protection, until)) is not None:
                connection.close()
                connection = local
        self._trouble = False
        return connection

    def give_up(self, connection: Connection) -> int:
        """What was asked for on it is not wanted any more, but may still be on its way, and arrive behind what is asked
        for on another. Connections with this number and later ones have told the store before they are used.
        """
        self._given_up.add(connection.number)
        return self.new_number()

    def new_number(self) -> int:
        """Of a connection: later ones have greater numbers, and begin to greet later."""
        return next(self._numbers)

    def lost(self) -> None:
        """A connection broke: the next attempt is a reconnect."""
        self._trouble = True

    def close(self) -> None:
        """Ends all attempts and pauses; there will be no further ones."""
        self.closing.set()
        for dialing in list(self._dialing):
            _abort(dialing)

    def abandon_after_fork(self) -> None:
        """In a forked child: closed. The parent's threads may hold the lock of the event there is."""
        self.closing = threading.Event()
        self.closing.set()
        self._hook_lock = threading.Lock()

    def abort_elsewhere(self) -> None:
        """Ends the attempts under way to reach another place than `url`."""
        for dialing, url in list(self._dialing.items()):
            if url != self.url:
                _abort(dialing)

    def _at_address(self, role: int, protection: Protection, wait: AnswerWait) -> Connection:
        url = self.url
        try:
            found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except OSError as error:
            signal_handlers.pass_on(error)
            raise ConnectionLost(f"host {url.host!r} cannot be resolved: {error}") from None
        failure: Exception = ConnectionLost(f"host {url.host!r} has no address")
        for family, kind, protocol, _, address in found:
            dialing = self._open_socket(family, kind, protocol)
            try:
                with self._abortable(dialing, url):
                    self._connect(dialing, address, wait.until)
                    if role == m.EVENTS:
                        # Heartbeats that nobody acknowledges end the connection, should the store's machine vanish.
                        timeout_ms = max(1000, int(self._heartbeat_timeout_s * 1000))
                        dialing.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
                    place = KnownStore(url, "", _peer_name(dialing))
                    connection, welcome = self._greeted(dialing, place, role, protection, wait)
            except (ConnectionLost, AnswerLate) as error:
                failure = error
                continue
            self._met = place._replace(incarnation=welcome.incarnation, local_key=welcome.local_key)
            return connection
        try:
            raise failure
        finally:
            del failure  # which knows this frame: the two would keep each other, and all callers' frames, alive

    def _open_socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        try:
            return open_socket(family, kind, protocol)
        except OSError as error:
            signal_handlers.pass_on(error)
            raise resource_failure(f"store {self.url} cannot be reached", error) from error

    def _at_local_socket(self, protection: Protection, until: float) -> Connection | None:
        """None: we have not met the store yet, or it has no local socket for us; its address always serves as well."""
        met = self._met
        if met is None or met.url != self.url or bool(met.local_key) != protection.is_on:
            return None
        dialing = connect_local(met.incarnation, own_user_only=protection.is_on)
        if dialing is None:
            return None
        try:
            with self._abortable(dialing, met.url):
                connection, _ = self._greeted(dialing, met, m.REQUESTS, protection, AnswerWait(until))
                if connection.incarnation != met.incarnation:
                    raise ConnectionLost(f"behind it is store {connection.incarnation}")
        except (ConnectionLost, AnswerLate) as error:
            if self._useless_local != met.incarnation:  # once: it is tried for every connection
                self._useless_local = met.incarnation
                reason = str(error) or "no answer"
                _log.info("store %s: its local socket on this host is of no use: %s", met.url, reason)
            return None
        self._useless_local = ""
        return connection

    @contextlib.contextmanager
    def _abortable(self, dialing: socket.socket, url: StoreUrl) -> Iterator[None]:
        """`close` and `abort_elsewhere` end it, and what goes wrong closes it."""
        self._dialing[dialing] = url
        try:
            if self.closing.is_set():
                raise AnswerLate
            yield
        except OSError as error:
            dialing.close()
            signal_handlers.pass_on(error)
            raise ConnectionLost(str(error)) from None
        except BaseException:
            dialing.close()
            raise
        finally:
            self._dialing.pop(dialing, None)

    def _connect(self, dialing: socket.socket, address: Any, until: float) -> None:
        remaining_s = until - clock.now()
        if remaining_s <= 0:
            raise AnswerLate
        dialing.settimeout(min(remaining_s, RETURN_TIMEOUT_S if self.returning else CONNECT_TIMEOUT_S))
        dialing.connect(address)
        dialing.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if dialing.getsockname() == dialing.getpeername():
            # On one machine a connect to a free port can meet itself; kept, it would even keep the store from binding.
            raise ConnectionLost("Connection refused (nobody listens there)")

    def _greeted(
        self, connected: socket.socket, place: KnownStore, role: int, protection: Protection, wait: AnswerWait
    ) -> tuple[Connection, m.Welcome]:
        """At the address, or at the local socket of a place whose key we know: there is no TLS, and no token."""
        ready: socket.socket | TlsSocket = connected
        if protection.tls is not None and not place.local_key:
            from memfabric_hybrid.store.client.tls_handshake import shake_hands  # here: it loads OpenSSL

            context = protection.tls.contexts().client
            ready = shake_hands(connected, context, place.peer_name, place.url, wait)
        number = self.new_number()
        given_up = tuple(self._given_up)  # after the number was drawn, see `give_up`
        connection = Connection(ready, place.peer_name, place.url, number)
        token = None if place.local_key else protection.token
        nonce = b"" if token is None else new_nonce()
        hello = m.Hello(
            self._session, role, self._heartbeat_timeout_s, self.returning, nonce, place.local_key, number, given_up
        )
        welcome = greet(connection, self.url, hello, token, wait)
        self._given_up.difference_update(given_up)
        return connection, welcome

    def _call_hook(self) -> None:
        if self._before_reconnect is None or self.closing.is_set():
            return
        with self._hook_lock:
            callbacks.run(f"the call before reconnecting to store {self.url}", self._before_reconnect)


def _abort(dialing: socket.socket) -> None:
    with contextlib.suppress(OSError):  # not connected yet, or closed by its thread meanwhile
        dialing.shutdown(socket.SHUT_RDWR)


def _peer_name(connected: socket.socket) -> str:
    host, port = connected.getpeername()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
