"""A member that comes back: everything it owns is written again, thing by thing; what others took is listed."""

from __future__ import annotations

from collections.abc import Callable

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, FabricError, Unreachable
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.range_requests import RangeRequests
from memfabric_hybrid.store.etcd.rank_requests import RankRequests
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.limits import rank_key, shown


def restore(scope: Scope, owned: m.Restore, still_there: list[bytes], deadline: Deadline) -> tuple[m.Refusal, ...]:
    """The refusals. `still_there`: what etcd has under our lease; what we do not own any more goes.

    Unreachable when etcd is lost meanwhile: then all of it has to be done again.
    """
    _drop_unlisted(scope, owned, still_there, deadline)
    refused: list[m.Refusal] = []

    def attempt(kind: str, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Unreachable:
            raise
        except FabricError as error:
            refused.append(m.Refusal(kind, name, error.code, str(error)))

    ranks, ranges = RankRequests(scope), RangeRequests(scope)
    for claim in owned.claims:
        name = rank_key(claim.group, claim.rank)
        attempt("rank", name, lambda claim=claim: ranks.claim(claim, claim.rank, (), deadline))  # type: ignore[misc]
    for key, value in owned.ephemerals.items():
        attempt("key", key, lambda key=key, value=value: _restore_key(scope, key, value, deadline))  # type: ignore[misc]
    for held in owned.ranges:
        attempt("range", held.name, lambda held=held: ranges.restore(held, deadline))  # type: ignore[misc]
    return tuple(refused)


def _drop_unlisted(scope: Scope, owned: m.Restore, still_there: list[bytes], deadline: Deadline) -> None:
    names = scope.names
    listed = {names.key(key) for key in owned.ephemerals}
    for claim in owned.claims:
        listed |= {names.rank(claim.group, claim.rank), names.key(rank_key(claim.group, claim.rank))}
    listed |= {names.holder(held.name, scope.lease) for held in owned.ranges}
    for name in still_there:
        if name not in listed and not name.startswith(names.rounds):  # calls that wait look after their arrivals
            gone = [api.delete(api.of_key(name))]
            scope.transact([api.is_leased(name, scope.lease)], gone, [], deadline)


def _restore_key(scope: Scope, key: str, value: bytes, deadline: Deadline) -> None:
    name = scope.names.key(key)
    new = [api.put(name, value, scope.lease)]
    for free in (api.is_absent(name), api.is_leased(name, scope.lease)):
        if scope.transact([free], new, [], deadline).succeeded:
            return
    raise Duplicated(f"key {shown(key)} was written by another member meanwhile")
