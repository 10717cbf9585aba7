"""What etcd's refusals mean for who asked. Pure: status and body of an HTTP answer in, an exception out.

gRPC's codes, as the gateway passes them on: https://grpc.io/docs/guides/status-codes.
"""

from __future__ import annotations

import msgspec

from memfabric_hybrid.errors import FabricError, NoResources, NotConnected
from memfabric_hybrid.store.client.connection import ConnectionLost
from memfabric_hybrid.store.etcd.gateway import api

INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, EXHAUSTED, FAILED_PRECONDITION = 3, 5, 7, 8, 9
OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED = 11, 12, 16

_TRUST_REMEDY = "set MF_ETCD_USER and MF_ETCD_PASSWORD to a user that may read and write /memfabric/"
_UNTRUSTED_ARGUMENTS = ("user name is empty", "authentication failed", "auth")  # said with INVALID_ARGUMENT


class Unavailable(ConnectionLost):
    """This endpoint cannot serve now: no leader, no quorum, or a leader that changes. Another one may."""


class TokenExpired(Exception):
    """etcd does not know our authentication any more; authenticate again. Nothing was done."""


class LeaseGone(Exception):
    """The lease is over, or etcd has lost its data. Nothing was done."""


class LeaseExists(Exception):
    """It is there already. Nothing was done."""


class Compacted(Exception):
    """The history that was asked for is gone."""


def raised_by(status: int, body: bytes, subject: str) -> Exception:
    """`subject` begins the sentence: the store's URL."""
    try:
        complaint = api.decode(body, api.Complaint)
    except msgspec.DecodeError:
        return NotConnected(
            f"{subject} answered with HTTP status {status}; that is no etcd of version 3.4 or later with its JSON "
            "gateway on: check the address"
        )
    said, code = complaint.error.removeprefix("etcdserver: "), complaint.code
    if code == NOT_FOUND and "lease" in said:
        return LeaseGone(said)
    if code == FAILED_PRECONDITION and "lease already exists" in said:
        return LeaseExists(said)
    if code == OUT_OF_RANGE:
        return Compacted(said)
    if code == UNAUTHENTICATED:
        return TokenExpired(said)
    if code == PERMISSION_DENIED or (code == INVALID_ARGUMENT and _is_about_trust(said)):
        return NotConnected(f"{subject} does not admit this process: {said}; {_TRUST_REMEDY}")
    if code == EXHAUSTED:
        return NoResources(
            f"{subject}: {said}; compact and defragment etcd, clear its alarm, and set --auto-compaction-retention"
        )
    if code in (INVALID_ARGUMENT, UNIMPLEMENTED, FAILED_PRECONDITION):
        return FabricError(f"{subject} refuses: {said}")
    return Unavailable(said)


def _is_about_trust(said: str) -> bool:
    return any(words in said for words in _UNTRUSTED_ARGUMENTS)
