"""One HTTP connection to one etcd endpoint, used by one thread at a time: requests with answers, or a stream."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from typing import NamedTuple

from memfabric_hybrid import clock
from memfabric_hybrid.machine import signal_handlers
from memfabric_hybrid.store.client.connection import AnswerLate, ConnectionLost, NeverLeft, NotAdmitted
from memfabric_hybrid.store.client.tls_socket import TlsSocket
from memfabric_hybrid.store.etcd.gateway.http_answers import AnswerReader, NotHttp, Piece
from memfabric_hybrid.store.protection.tls_failure import TlsFailure
from memfabric_hybrid.store.url import StoreUrl

SEND_SLICE_S = 0.5  # of a send that does not get on, between looks at the clock
RECEIVE_BYTES = 256 * 1024

Endpoint = tuple[str, int]


class Answer(NamedTuple):
    status: int
    body: bytes


class EtcdConnection:
    def __init__(self, connected: socket.socket | TlsSocket, endpoint: Endpoint, url: StoreUrl, token: str) -> None:
        """Takes over a connected socket. `token`: of etcd's authentication, or nothing."""
        self.endpoint = endpoint
        self.url = url  # where it was looked for
        self.token = token
        self.fd = connected.fileno()
        self._socket = connected
        self._reader = AnswerReader()
        self._has_answered = False
        connected.setblocking(True)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, int(SEND_SLICE_S * 1e6)))

    @property
    def tls(self) -> TlsSocket | None:
        return self._socket if isinstance(self._socket, TlsSocket) else None

    def request(self, path: str, body: bytes) -> bytes:
        """As it goes over this connection."""
        host, port = self.endpoint
        token = f"Authorization: {self.token}\r\n" if self.token else ""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/json\r\n"
            f"{token}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def exchange(self, path: str, body: bytes, until: float) -> Answer:
        """NeverLeft: not all of it was sent. ConnectionLost, AnswerLate."""
        self.send(path, body, until)
        data: list[bytes] = []
        while True:
            for piece in self.receive(until):
                data.append(piece.data)
                if piece.is_last:
                    return Answer(piece.status, b"".join(data))

    def send(self, path: str, body: bytes, until: float) -> None:
        rest = memoryview(self.request(path, body))
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError as error:
                signal_handlers.pass_on(error)
                if clock.now() >= until:
                    raise NeverLeft("the endpoint takes no more bytes") from None
            except OSError as error:
                signal_handlers.pass_on(error)
                raise NeverLeft(str(error)) from None

    def receive(self, until: float) -> list[Piece]:
        """What has come, at least something."""
        while True:
            pieces = self.receive_now()
            if pieces:
                return pieces
            remaining_s = until - clock.now()
            if remaining_s <= 0:
                raise AnswerLate("no answer")
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            poll.poll(remaining_s * 1000 + 1)

    def receive_now(self) -> list[Piece]:
        """What is here already, perhaps nothing."""
        try:
            received = self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError as error:
            signal_handlers.pass_on(error)
            return []
        except TlsFailure as error:  # who refuses our certificate says so after the handshake
            raise NotAdmitted(str(error)) from None
        except OSError as error:
            signal_handlers.pass_on(error)
            raise ConnectionLost(str(error)) from None
        if not received:
            hint = (
                "" if self._has_answered or self.tls else " before any answer; does it want TLS (set_conf_store_tls)?"
            )
            raise ConnectionLost(f"etcd closed the connection{hint}")
        self._has_answered = True
        try:
            return self._reader.feed(received)
        except NotHttp as error:
            raise ConnectionLost(f"no etcd: {error}") from None

    def abort(self) -> None:
        """From any thread: whoever is inside gets ConnectionLost. The owner still closes."""
        with contextlib.suppress(OSError):  # not connected any more: nobody can be waiting
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
