"""Proofs that one knows the token, without saying it: HMAC over the random numbers (nonces) of both sides. Pure.

Each side chooses a nonce, so nobody can use an answer of yesterday; each side has a label of its own, so nobody can
send an answer back to whom it came from.
"""

from __future__ import annotations

import hashlib
import hmac

NONCE_BYTES = 32
TOKEN_REMEDY = "set MF_CONFIG_STORE_TOKEN or MF_CONFIG_STORE_TOKEN_FILE to the same for the store and all members"


def server_proof(token: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    """What only a store with the token can answer to a Hello."""
    return _mac(token, b"memfabric store", client_nonce, server_nonce)


def client_proof(token: bytes, client_nonce: bytes, server_nonce: bytes, session: bytes) -> bytes:
    """What only a client with the token can answer to a Challenge."""
    return _mac(token, b"memfabric client", client_nonce, server_nonce, session)


def is_same(proof: bytes, expected: bytes) -> bool:
    """In the same time, wherever they differ."""
    return hmac.compare_digest(proof, expected)


def _mac(token: bytes, *parts: bytes) -> bytes:
    """Each part with its length: no two lists of parts are the same bytes."""
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.new(token, message, hashlib.sha256).digest()
