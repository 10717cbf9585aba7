"""The first words on a connection: Hello, the proofs of the token where there is one, Welcome."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from memfabric_hybrid import clock
from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.connection import AnswerLate, Connection, ConnectionLost, NotAdmitted
from memfabric_hybrid.store.proofs import NONCE_BYTES, TOKEN_REMEDY, client_proof, is_same, server_proof
from memfabric_hybrid.store.url import StoreUrl
from memfabric_hybrid.waiting_log import WaitingLog

GREETING_SLICE_S = 0.5  # of the wait for an answer, between looks whether to say that there is none


class AnswerWait(NamedTuple):
    """How long to wait for the store's first words, and where to say that it waits."""

    until: float
    waiting: WaitingLog | None = None


def greet(connection: Connection, url: StoreUrl, hello: m.Hello, token: bytes | None, wait: AnswerWait) -> m.Welcome:
    """Says `hello`, which has a nonce if there is a token. NotAdmitted, ConnectionLost, AnswerLate, NoStore."""
    connection.send(m.framed(hello), wait.until)
    answer = _answer(connection, url, wait)
    if token is not None:
        answer = _prove(connection, hello, token, answer, wait.until)
    if type(answer) is m.Refused and answer.code == Code.NOT_CONNECTED:
        raise NotAdmitted(answer.sentence)
    if type(answer) is not m.Welcome:
        raise ConnectionLost(f"the store refused our Hello: {answer}")
    connection.incarnation = answer.incarnation
    return answer


def new_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


def _prove(
    connection: Connection, hello: m.Hello, token: bytes, answer: m.ServerMessage, until: float
) -> m.ServerMessage:
    """The store first: one that cannot prove that it has the token is not ours, whatever it says."""
    if type(answer) is m.Welcome:
        raise NotAdmitted(f"it has no token, and this process wants a store with one; {TOKEN_REMEDY}")
    if type(answer) is not m.Challenge:
        return answer
    if not is_same(answer.proof, server_proof(token, hello.nonce, answer.nonce)):
        connection.send(m.framed(m.Proof(b"")), until)  # for its log
        raise NotAdmitted(f"its token is another than that of this process; {TOKEN_REMEDY}")
    proof = client_proof(token, hello.nonce, answer.nonce, hello.session)
    connection.send(m.framed(m.Proof(proof)), until)
    return connection.receive(until)


def silent(peer_name: str, url: StoreUrl, wait: AnswerWait) -> None:
    """Nothing has come for a while; AnswerLate when it is too late for anything to come."""
    silence = f"something at {peer_name} accepts connections and does not answer; is it a store?"
    if clock.now() >= wait.until:
        raise AnswerLate(silence)
    if wait.waiting is not None:
        wait.waiting.tell(f"store {url} is not there: {silence}")


def _answer(connection: Connection, url: StoreUrl, wait: AnswerWait) -> m.ServerMessage:
    """To our Hello. NoStore for an answer in another language."""
    while True:
        try:
            return connection.receive_first(min(wait.until, clock.now() + GREETING_SLICE_S))
        except AnswerLate:  # nothing else is under way on this connection: the answer may still come
            silent(connection.peer_name, url, wait)
