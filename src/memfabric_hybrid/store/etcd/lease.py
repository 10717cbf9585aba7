"""The lease that is a participant's session: taken, looked at, and given back. What hangs on it goes with it."""

from __future__ import annotations

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.complaints import LeaseExists, LeaseGone
from memfabric_hybrid.store.etcd.scope import Scope


def keep(scope: Scope, until: float) -> bool:
    """Its time begins anew; False: there is no such lease (any more). ConnectionLost, AnswerLate."""
    return scope.gateway.ask_once(api.KEEP_ALIVE, {"ID": scope.lease}, api.KeptAlive, until).result.TTL > 0


def is_held(scope: Scope, deadline: Deadline) -> bool:
    """As a caller asks it, who may wait for etcd."""
    return scope.gateway.ask(api.KEEP_ALIVE, {"ID": scope.lease}, api.KeptAlive, deadline).result.TTL > 0


def keys_of(scope: Scope, until: float) -> list[bytes]:
    """What hangs on it. ConnectionLost, AnswerLate."""
    return scope.gateway.ask_once(api.TIME_TO_LIVE, {"ID": scope.lease, "keys": True}, api.Lease, until).keys


def grant(scope: Scope, ttl_s: int, until: float) -> None:
    try:
        scope.gateway.ask_once(api.GRANT, {"TTL": ttl_s, "ID": scope.lease}, api.Lease, until)
    except LeaseExists:  # from an attempt whose answer was lost
        return


def revoke(scope: Scope, until: float) -> None:
    """Everything that hangs on it goes at once. ConnectionLost, AnswerLate."""
    try:
        scope.gateway.ask_once(api.REVOKE, {"ID": scope.lease}, api.Lease, until)
    except LeaseGone:
        return
