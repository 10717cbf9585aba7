"""Address ranges as transactions of etcd: read who holds what, place as our own server does, write if it still fits."""

from __future__ import annotations

import msgspec

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotExist
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.limits import shown
from memfabric_hybrid.store.state.ranges import LONGEST_SHOWN, RangeTable


class HoldRecord(msgspec.Struct, array_like=True, frozen=True):
    base: int
    size_bytes: int
    asked: str


_decode = msgspec.msgpack.Decoder(HoldRecord).decode


class RangeRequests:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def hold(self, request: m.HoldRange, deadline: Deadline) -> int:
        look = self._look()
        outcome = self._scope.transact([], [look], [], deadline)
        while True:
            held = outcome.found(0)
            table = table_of(self._scope, held)
            base = table.hold(request.name, request.size_bytes, b"", request.asked)
            record = HoldRecord(base, request.size_bytes, request.asked[:LONGEST_SHOWN])
            outcome = self._put(request.name, record, held, outcome.header.revision, deadline)
            if outcome.succeeded:
                return base
            self._scope.check_time(deadline, f"holding range {shown(request.name)}")

    def restore(self, held_before: m.RestoredRange, deadline: Deadline) -> None:
        """What we held before: overlaps with other names are accepted, they exist in the processes already."""
        outcome = self._scope.transact([], [self._look()], [], deadline)
        while True:
            held = outcome.found(0)
            name, base, size_bytes = held_before.name, held_before.base, held_before.size_bytes
            table_of(self._scope, held).restore(name, base, size_bytes, b"")
            outcome = self._put(name, HoldRecord(base, size_bytes, ""), held, outcome.header.revision, deadline)
            if outcome.succeeded:
                return
            self._scope.check_time(deadline, f"holding range {shown(name)}")

    def release(self, name: str, deadline: Deadline) -> m.Done:
        gone = api.delete(api.of_key(self._scope.names.holder(name, self._scope.lease)))
        outcome = self._scope.transact([], [gone], [], deadline)
        if not outcome.deleted(0):
            raise NotExist(f"range {shown(name)} is not held by this member")
        return m.Done(outcome.header.revision)

    def _look(self) -> api.Body:
        return api.read(api.of_prefix(self._scope.names.ranges))

    def _put(
        self, name: str, record: HoldRecord, held: list[api.KeyValue], revision: int, deadline: Deadline
    ) -> api.Outcome:
        """A range is where it is while one holder lives; a new one must not meet another new one."""
        names, lease = self._scope.names, self._scope.lease
        holder = next((kv for kv in held if kv.key.startswith(names.holders(name))), None)
        unchanged = api.has_nothing_newer(names.ranges, revision) if holder is None else api.is_still(holder)
        new = api.put(names.holder(name, lease), msgspec.msgpack.encode(record), lease)
        return self._scope.transact([unchanged], [new], [self._look()], deadline)


def table_of(scope: Scope, held: list[api.KeyValue]) -> RangeTable:
    """The first holder's words count, as in our own server."""
    table = RangeTable()
    for kv in sorted(held, key=lambda kv: kv.create_revision):
        record = _decode(kv.value)
        table.add(scope.names.range_of(kv.key), record.base, record.size_bytes, record.asked, b"%x" % kv.lease)
    return table
