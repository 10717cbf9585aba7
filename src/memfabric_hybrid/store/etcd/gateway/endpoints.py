"""Reaching etcd: its endpoints in turn, a connection to one of them, and the token of its authentication."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from memfabric_hybrid import clock, logs
from memfabric_hybrid.errors import FabricError, InvalidParam, NotConnected, TimedOut, resource_failure
from memfabric_hybrid.machine import signal_handlers
from memfabric_hybrid.machine.file_descriptors import open_socket
from memfabric_hybrid.store.client.connection import AnswerLate, ConnectionLost, NotAdmitted
from memfabric_hybrid.store.client.greeting import AnswerWait
from memfabric_hybrid.store.client.tls_socket import TlsSocket
from memfabric_hybrid.store.etcd.gateway import api, credentials
from memfabric_hybrid.store.etcd.gateway.complaints import raised_by
from memfabric_hybrid.store.etcd.gateway.connection import Endpoint, EtcdConnection
from memfabric_hybrid.store.etcd.gateway.credentials import Credentials
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection.protection import ProtectionSource
from memfabric_hybrid.store.url import NO_PORT, StoreUrl

CONNECT_S = 1.0  # to one endpoint: another one may be there

_log = logs.get(__name__)
CredentialsSource = Callable[[], "Credentials | None"]


class Endpoints:
    """Shared by the threads of one participant."""

    def __init__(
        self,
        url: StoreUrl,
        protection: ProtectionSource = protections.configured,
        user: CredentialsSource = credentials.configured,
    ) -> None:
        self.closing = threading.Event()
        self.protection = protection
        self._user = user
        self._token = ""
        self._dialing: set[socket.socket] = set()
        self._useless: set[Endpoint] = set()  # of which the log has said so, since they served last
        self.point_at(url)

    def point_at(self, url: StoreUrl) -> None:
        """InvalidParam: not etcd."""
        if url.scheme != "etcd":
            raise InvalidParam(f"store URL {url}: this process uses an etcd, which can only move to another etcd")
        if any(port == NO_PORT for _, port in url.endpoints):
            raise InvalidParam(f"store URL {url}: every endpoint needs a port, etcd://host:port[,host:port...]")
        self.url = url
        self._first = 0

    @property
    def in_order(self) -> list[Endpoint]:
        """Those to try, the one that worked last first."""
        places, first = self.url.endpoints, self._first
        return [places[(first + step) % len(places)] for step in range(len(places))]

    def failed(self, endpoint: Endpoint) -> None:
        """The next one has its turn, unless another thread has seen to that."""
        places = self.url.endpoints
        if places[self._first % len(places)] == endpoint:
            self._first = (self._first + 1) % len(places)
            if len(places) > 1 and endpoint not in self._useless:
                self._useless.add(endpoint)
                _log.info("etcd %s:%d is of no use now; going on with %s:%d", *endpoint, *places[self._first])

    def served(self, endpoint: Endpoint) -> None:
        """It has answered: should it fail again, that is news."""
        if endpoint in self._useless:
            self._useless.discard(endpoint)

    def connect(self, endpoint: Endpoint, until: float) -> EtcdConnection:
        """ConnectionLost or AnswerLate when it does not work; NotConnected when etcd and we do not trust each other."""
        url = self.url
        connected = self._connect(endpoint, min(until, clock.now() + CONNECT_S))
        try:
            connection = EtcdConnection(self._protected(connected, endpoint, url, until), endpoint, url, self._token)
            if not self._token and (user := self._user()) is not None:
                connection.token = self._token = self._authenticate(connection, user, until)
        except NotAdmitted as refused:
            connected.close()
            raise NotConnected(f"store {url} and this process do not trust each other: {refused}") from None
        except OSError as error:
            connected.close()
            signal_handlers.pass_on(error)
            raise ConnectionLost(str(error)) from None
        except BaseException:
            connected.close()
            raise
        return connection

    def forget_token(self, expired: str) -> None:
        if self._token == expired:
            self._token = ""

    def close(self) -> None:
        """Ends all attempts; there will be no further ones."""
        self.closing.set()
        for dialing in list(self._dialing):
            with contextlib.suppress(OSError):  # not connected yet, or closed by its thread meanwhile
                dialing.shutdown(socket.SHUT_RDWR)

    def abandon_after_fork(self) -> None:
        """In a forked child: closed. The parent's threads may hold the lock of the event there is."""
        self.closing = threading.Event()
        self.closing.set()

    def unreachable(self, timeout_s: float, attempts: int, reason: str) -> FabricError:
        return TimedOut(
            f"store {self.url} could not be reached within {timeout_s:g} s: tried {attempts} times, "
            f"last error: {reason or 'no answer'}; check that etcd runs there and that it has a leader"
        )

    def _connect(self, endpoint: Endpoint, until: float) -> socket.socket:
        host, port = endpoint
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            signal_handlers.pass_on(error)
            raise ConnectionLost(f"host {host!r} cannot be resolved: {error}") from None
        reason = f"host {host!r} has no address"
        for family, kind, protocol, _, address in found:
            remaining_s = until - clock.now()
            if remaining_s <= 0 or self.closing.is_set():
                raise AnswerLate(f"{host}:{port} does not answer")
            try:
                dialing = open_socket(family, kind, protocol)
            except OSError as error:
                signal_handlers.pass_on(error)
                raise resource_failure(f"store {self.url} cannot be reached", error) from error
            self._dialing.add(dialing)
            try:
                dialing.settimeout(remaining_s)
                dialing.connect(address)
                dialing.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if dialing.getsockname() == dialing.getpeername():
                    raise ConnectionRefusedError("Connection refused (nobody listens there)")
                return dialing
            except OSError as error:
                dialing.close()
                signal_handlers.pass_on(error)
                reason = f"{host}:{port}: {error}"
            except BaseException:
                dialing.close()
                raise
            finally:
                self._dialing.discard(dialing)
        raise ConnectionLost(reason)

    def _protected(
        self, connected: socket.socket, endpoint: Endpoint, url: StoreUrl, until: float
    ) -> socket.socket | TlsSocket:
        identity = self.protection().tls
        if identity is None:
            return connected
        from memfabric_hybrid.store.client.tls_handshake import shake_hands  # here: it loads OpenSSL

        host, port = endpoint
        try:
            return shake_hands(connected, identity.contexts().client, f"{host}:{port}", url, AnswerWait(until))
        except NotAdmitted:
            raise
        except (ConnectionLost, OSError) as error:
            raise ConnectionLost(f"{error} during the TLS handshake; does this etcd have certificates?") from None

    def _authenticate(self, connection: EtcdConnection, user: Credentials, until: float) -> str:
        body = api.encode({"name": user.user, "password": user.password})
        answer = connection.exchange(api.AUTHENTICATE, body, until)
        if answer.status != 200:
            raise raised_by(answer.status, answer.body, f"store {self.url}")
        return api.decode(answer.body, api.Authenticated).token
