"""The client's side of a TLS handshake with the store: both show certificates; who is not trusted is told why."""

from __future__ import annotations

import contextlib
import socket
import ssl

from memfabric_hybrid import clock
from memfabric_hybrid.machine import signal_handlers
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.connection import ConnectionLost, NoStore, NotAdmitted, shown_answer
from memfabric_hybrid.store.client.greeting import GREETING_SLICE_S, AnswerWait, silent
from memfabric_hybrid.store.client.tls_socket import RECEIVE_BYTES, TlsSocket
from memfabric_hybrid.store.frames import FrameError, FrameReader
from memfabric_hybrid.store.limits import MAX_GREETING_FRAME_BYTES
from memfabric_hybrid.store.protection.tls_failure import TlsFailure
from memfabric_hybrid.store.protection.tls_stream import ALERT, HANDSHAKE, TlsStream
from memfabric_hybrid.store.url import StoreUrl

NO_TLS = "it speaks no TLS, and this process wants a store that does; call set_conf_store_tls for both or for neither"


def shake_hands(
    connected: socket.socket, context: ssl.SSLContext, peer_name: str, url: StoreUrl, wait: AnswerWait
) -> TlsSocket:
    """NotAdmitted: one of the two does not trust the other. ConnectionLost, AnswerLate, NoStore as in `greet`."""
    stream = TlsStream(context, server_side=False)
    stream.start()
    connected.sendall(stream.outgoing())
    received = _receive(connected, peer_name, url, wait)
    if received[0] not in (HANDSHAKE, ALERT):
        raise _no_tls(received)
    while True:
        try:
            plain = stream.feed(received)
        except TlsFailure as failure:
            with contextlib.suppress(OSError):  # it may be gone already
                connected.sendall(stream.outgoing())  # what is wrong, for its log
            raise NotAdmitted(str(failure)) from None
        connected.sendall(stream.outgoing())
        if stream.is_established:
            tls = TlsSocket(connected, stream)
            tls.early(plain)
            return tls
        received = _receive(connected, peer_name, url, wait)


def _receive(connected: socket.socket, peer_name: str, url: StoreUrl, wait: AnswerWait) -> bytes:
    while True:
        connected.settimeout(max(0.001, min(wait.until - clock.now(), GREETING_SLICE_S)))
        try:
            received = connected.recv(RECEIVE_BYTES)
        except TimeoutError as error:
            signal_handlers.pass_on(error)
            silent(peer_name, url, wait)
            continue
        if not received:
            raise ConnectionLost("the store closed the connection")
        return received


def _no_tls(received: bytes) -> ConnectionLost:
    """A store without TLS says so in its own language; anything else is no store."""
    try:
        payloads = FrameReader(MAX_GREETING_FRAME_BYTES).feed(received)
        answer = m.decode_server_message(payloads[0]) if payloads else None
    except FrameError:
        answer = None
    if isinstance(answer, m.Refused):
        return NotAdmitted(NO_TLS)
    return NoStore(f"it answered {shown_answer(received)}")
