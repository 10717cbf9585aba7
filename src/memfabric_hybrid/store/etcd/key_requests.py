"""Keys and values as transactions of etcd. A key's lease says whose it is: nobody's, ours, or another member's."""

from __future__ import annotations

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, InvalidParam, NoResources
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.interface import OtherIncarnation
from memfabric_hybrid.store.limits import MAX_PREFIX_BYTES, MIB, check_counter, counter, shown

MAX_VALUE_BYTES = MIB  # etcd takes requests of 1.5 MiB unless it is told otherwise
NOBODY = 0


def check_value(key: str, value: bytes) -> None:
    if len(value) > MAX_VALUE_BYTES:
        raise InvalidParam(
            f"value of key {shown(key)} has {len(value)} bytes, allowed are 0 to {MAX_VALUE_BYTES} in an etcd store"
        )


class KeyRequests:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def get(self, key: str, deadline: Deadline) -> bytes | None:
        found = self._read(key, deadline)
        return None if found is None else found.value

    def read_prefix(self, prefix: str, deadline: Deadline) -> m.Entries:
        names = self._scope.names
        what = api.of_prefix(names.key(prefix))
        found = self._scope.gateway.ask(api.RANGE, what, api.Found, deadline)
        return m.Entries(found.header.revision, entries_of(self._scope, prefix, found))

    def set(self, request: m.Set, is_claim: bool, deadline: Deadline) -> m.Done:
        """`is_claim`: the key is a rank of ours, and stays one."""
        check_value(request.key, request.value)
        name, lease = self._scope.names.key(request.key), self._scope.lease
        owner = lease if is_claim else NOBODY
        new = api.put(name, request.value, lease if request.ephemeral or is_claim else NOBODY)
        while True:
            compare = [api.is_leased(name, owner)]
            outcome = self._scope.transact(compare, [new], [api.read(api.of_key(name))], deadline)
            if outcome.succeeded:
                return m.Done(outcome.header.revision)
            owner = self._owner(request.key, outcome.found(0))
            self._scope.check_time(deadline, f"writing key {shown(request.key)}")

    def delete(self, key: str, claim: m.RestoredClaim | None, deadline: Deadline) -> bool:
        """`claim`: the rank of ours that the key is; it goes along."""
        names, lease = self._scope.names, self._scope.lease
        name, owner = names.key(key), NOBODY if claim is None else lease
        gone = [api.delete(api.of_key(name))]
        if claim is not None:
            gone.append(api.delete(api.of_key(names.rank(claim.group, claim.rank))))
        while True:
            compare = [api.is_leased(name, owner)]
            outcome = self._scope.transact(compare, gone, [api.read(api.of_key(name))], deadline)
            if outcome.succeeded:
                return bool(outcome.deleted(0))
            owner = self._owner(key, outcome.found(0))
            self._scope.check_time(deadline, f"deleting key {shown(key)}")

    def compare_and_set(
        self, request: m.CompareAndSet, is_claim: bool, deadline: Deadline, incarnation: str | None
    ) -> m.Swapped:
        check_value(request.key, request.value)
        names, lease = self._scope.names, self._scope.lease
        name = names.key(request.key)
        expected = api.is_absent(name) if request.expected is None else api.has_value(name, request.expected)
        life = [] if incarnation is None else [api.has_value(names.incarnation, incarnation.encode())]
        owner = lease if is_claim else NOBODY
        new = api.put(name, request.value, lease if request.ephemeral or is_claim else NOBODY)
        look = [api.read(api.of_key(name)), api.read(api.of_key(names.incarnation))]
        while True:
            compare = [expected, api.is_leased(name, owner), *life]
            outcome = self._scope.transact(compare, [new], look, deadline, repeatable=False)
            if outcome.succeeded:
                return m.Swapped(True, request.value)
            _check_life(outcome.found(1), incarnation, str(self._scope.gateway.endpoints.url))
            found = outcome.found(0)
            value = found[0].value if found else None
            if value != request.expected:
                return m.Swapped(False, value)
            owner = self._owner(request.key, found)
            self._scope.check_time(deadline, f"changing key {shown(request.key)}")

    def add(self, request: m.Add, deadline: Deadline) -> m.Number:
        check_counter(request.key, request.delta, "delta")
        found = self._read(request.key, deadline)
        while True:
            before = b"0" if found is None else found.value
            total = counter(request.key, before) + request.delta
            check_counter(request.key, total, "new value")
            done, found = self._replace(request.key, found, str(total).encode(), deadline)
            if done:
                return m.Number(total)

    def append(self, request: m.Append, deadline: Deadline) -> m.Number:
        found = self._read(request.key, deadline)
        while True:
            value = (b"" if found is None else found.value) + request.suffix
            check_value(request.key, value)
            done, found = self._replace(request.key, found, value, deadline)
            if done:
                return m.Number(len(value))

    def _replace(
        self, key: str, seen: api.KeyValue | None, value: bytes, deadline: Deadline
    ) -> tuple[bool, api.KeyValue | None]:
        """Writes if the key is as it was seen; what it is otherwise. Counters and lists are everybody's."""
        if seen is not None and seen.lease:
            raise InvalidParam(f"key {shown(key)} is ephemeral: it can be set, but not added or appended to")
        name = self._scope.names.key(key)
        compare = [api.is_unchanged(name, 0 if seen is None else seen.mod_revision)]
        new, look = [api.put(name, value)], [api.read(api.of_key(name))]
        outcome = self._scope.transact(compare, new, look, deadline, repeatable=False)
        if outcome.succeeded:
            return True, None
        self._scope.check_time(deadline, f"changing key {shown(key)}")
        found = outcome.found(0)
        return False, found[0] if found else None

    def _read(self, key: str, deadline: Deadline) -> api.KeyValue | None:
        what = api.of_key(self._scope.names.key(key))
        found = self._scope.gateway.ask(api.RANGE, what, api.Found, deadline).kvs
        return found[0] if found else None

    def _owner(self, key: str, found: list[api.KeyValue]) -> int:
        """Nobody or us; Duplicated when it belongs to another member."""
        owner = found[0].lease if found else NOBODY
        if owner not in (NOBODY, self._scope.lease):
            raise Duplicated(
                f"key {shown(key)} belongs to another member and vanishes with it; only that can change it"
            )
        return owner


def entries_of(scope: Scope, prefix: str, found: api.Found) -> dict[str, bytes]:
    """NoResources when they are more than one answer may hold."""
    if sum(len(kv.key) + len(kv.value) for kv in found.kvs) > MAX_PREFIX_BYTES:
        raise NoResources(
            f"prefix {shown(prefix)} holds more than {MAX_PREFIX_BYTES} bytes, too much for one answer; "
            "read narrower prefixes"
        )
    return {scope.names.key_of(kv.key): kv.value for kv in found.kvs}


def _check_life(found: list[api.KeyValue], incarnation: str | None, url: str) -> None:
    now = found[0].value.decode() if found else "none"
    if incarnation not in (None, now):
        raise OtherIncarnation(f"store {url} has lost its data meanwhile: it is {now} now, not {incarnation}")
