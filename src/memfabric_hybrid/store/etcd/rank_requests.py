"""Ranks as transactions of etcd: read the group, decide as our own server does, and write if nobody was quicker."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, NotExist
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.key_requests import check_value
from memfabric_hybrid.store.etcd.names import rank_of
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.limits import rank_key, shown
from memfabric_hybrid.store.state.ranks import Claim, RankTable


class ClaimRecord(msgspec.Struct, array_like=True, frozen=True):
    """`number`: the client's own name for its claim, by which it recognises one that was repeated."""

    capacity: int
    number: int


_decode = msgspec.msgpack.Decoder(ClaimRecord).decode


class RankRequests:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def claim(
        self, request: m.ClaimRank | m.RestoredClaim, wanted: int | None, excluded: Collection[int], deadline: Deadline
    ) -> int:
        """Also for a rank that we had before: then as `wanted`."""
        check_value(rank_key(request.group, 0), request.value)
        scope, lease = self._scope, self._scope.lease
        ours = Claim(_session_of(lease), request.claim)
        look = api.read(api.of_prefix(scope.names.ranks(request.group)))
        outcome = scope.transact([], [look], [], deadline)
        while True:
            claims = outcome.found(0)
            rank = table_of(request.group, claims).find(request.group, request.capacity, ours, wanted, excluded)
            name, key = scope.names.rank(request.group, rank), scope.names.key(rank_key(request.group, rank))
            record = msgspec.msgpack.encode(ClaimRecord(request.capacity, request.claim))
            new = [api.put(name, record, lease), api.put(key, request.value, lease)]
            if any(kv.key == name for kv in claims):  # ours, from an attempt whose answer was lost
                compare = [api.is_leased(name, lease)]
            else:
                compare = [api.is_absent(name), api.is_absent(key), self._same_group(request.group, claims, outcome)]
            outcome = scope.transact(compare, new, [look, api.read(api.of_key(key))], deadline)
            if outcome.succeeded:
                return rank
            _check_no_plain_key(request.group, rank, name, outcome)
            scope.check_time(deadline, f"claiming a rank of {shown(request.group)}")

    def free(self, request: m.FreeRanks, deadline: Deadline) -> tuple[int, ...]:
        look = api.read(api.of_prefix(self._scope.names.ranks(request.group)))
        claims = self._scope.transact([], [look], [], deadline).found(0)
        return table_of(request.group, claims).free(request.group, request.capacity, request.most)

    def release(self, group: str, rank: int, deadline: Deadline) -> m.Done:
        scope = self._scope
        name, key = scope.names.rank(group, rank), scope.names.key(rank_key(group, rank))
        gone = [api.delete(api.of_key(name)), api.delete(api.of_key(key))]
        outcome = scope.transact([api.is_leased(name, scope.lease)], gone, [], deadline)
        if not outcome.succeeded:
            raise NotExist(f"rank {rank} of group {shown(group)} is not held by this member")
        return m.Done(outcome.header.revision)

    def _same_group(self, group: str, claims: list[api.KeyValue], seen: api.Outcome) -> api.Body:
        """While one claim of it lives, a group lives, and with it its capacity; one without any must not begin."""
        if claims:
            return api.is_still(claims[0])
        return api.has_nothing_newer(self._scope.names.ranks(group), seen.header.revision)


def table_of(group: str, claims: list[api.KeyValue]) -> RankTable:
    table = RankTable()
    for kv in claims:
        record = _decode(kv.value)
        table.take(group, record.capacity, rank_of(kv.key), Claim(_session_of(kv.lease), record.number))
    return table


def _session_of(lease: int) -> bytes:
    return lease.to_bytes(8, "big")


def _check_no_plain_key(group: str, rank: int, name: bytes, outcome: api.Outcome) -> None:
    if outcome.found(1) and not any(kv.key == name for kv in outcome.found(0)):
        key = rank_key(group, rank)
        raise Duplicated(f"key {shown(key)} exists and is no rank; group {shown(group)} cannot use it")
