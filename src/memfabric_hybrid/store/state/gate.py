"""Who may come in: the token that a store asks for, and the key of its local socket. Pure; nonces come from outside.

A store without both lets everybody in who says Hello. One with a token answers a Hello with a Challenge, and welcomes
whoever answers that. At the local socket of a protected store the key is asked for instead, which clients learn when
they are welcomed at the address. TLS is not decided here: whoever lacks it never comes to say Hello.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Union

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.proofs import NONCE_BYTES, TOKEN_REMEDY, client_proof, is_same, server_proof
from memfabric_hybrid.store.state.effects import ConnectionId

WRONG_TOKEN = f"its token is another than that of this store; {TOKEN_REMEDY}"


class NotAdmitted(NamedTuple):
    why: str


Verdict = Union[m.Hello, m.Challenge, NotAdmitted]  # noqa: UP007 - Hello: welcome


class _Asked(NamedTuple):
    hello: m.Hello
    nonce: bytes


class Gate:
    """Thread-agnostic, as the state machine whose part it is."""

    def __init__(
        self, token: bytes | None = None, local_key: bytes = b"", new_nonce: Callable[[], bytes] | None = None
    ) -> None:
        if token is not None and new_nonce is None:
            raise ValueError("a gate with a token needs nonces")
        self._token = token
        self._new_nonce = new_nonce
        self.local_key = local_key  # empty: the local socket is as open as the address
        self._asked: dict[ConnectionId, _Asked] = {}

    def validate(self, connection: ConnectionId, hello: m.Hello, is_local: bool) -> Verdict:
        if is_local and self.local_key:
            if is_same(hello.local_key, self.local_key):
                return hello
            return NotAdmitted("it does not know the key of this store's local socket; use the store's address first")
        if self._token is None or self._new_nonce is None:
            if not hello.nonce:
                return hello
            return NotAdmitted(f"it wants a store with a token, and this store has none; {TOKEN_REMEDY}")
        if connection in self._asked:
            return NotAdmitted("a second Hello instead of a proof")
        if not hello.nonce:
            return NotAdmitted(f"it has no token, and this store admits nobody without; {TOKEN_REMEDY}")
        if len(hello.nonce) != NONCE_BYTES:
            return NotAdmitted(f"Hello with a nonce of {len(hello.nonce)} bytes")
        nonce = self._new_nonce()
        self._asked[connection] = _Asked(hello, nonce)
        return m.Challenge(nonce, server_proof(self._token, hello.nonce, nonce))

    def hear(self, connection: ConnectionId, proof: bytes) -> Verdict:
        """The answer to a Challenge."""
        asked = self._asked.pop(connection, None)
        if asked is None or self._token is None:
            return NotAdmitted("Proof before Hello")
        expected = client_proof(self._token, asked.hello.nonce, asked.nonce, asked.hello.session)
        return asked.hello if is_same(proof, expected) else NotAdmitted(WRONG_TOKEN)

    def forget(self, connection: ConnectionId) -> None:
        self._asked.pop(connection, None)
