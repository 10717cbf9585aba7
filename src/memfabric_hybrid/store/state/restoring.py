"""A member that comes back: everything it owns, registered again by one message. Pure.

The message is the whole truth about the session: what the server still holds for it beyond that is dropped. What
another living session has taken meanwhile is refused and listed, thing by thing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from memfabric_hybrid.errors import Duplicated, FabricError, NoResources
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import (
    MAX_RANGES,
    MAX_REVISION,
    check_key,
    check_prefix,
    check_value,
    rank_key,
    shown,
)
from memfabric_hybrid.store.state.effects import Effect, Send
from memfabric_hybrid.store.state.ownership import check_member, check_writer
from memfabric_hybrid.store.state.sessions import Session
from memfabric_hybrid.store.state.tables import StoreTables


def restore(tables: StoreTables, session: Session, message: m.Restore, now: float) -> list[Effect]:
    """Effects: the Restored reply, the consequences, then a snapshot for every watch."""
    session.awaits_restore = False
    keyspace = tables.keyspace
    # Whatever somebody claims, there is room to count on, and who has seen that later is believed as far.
    keyspace.revision = max(keyspace.revision, min(message.known_revision, MAX_REVISION)) + 1
    effects = _drop_unlisted(tables, session, message)
    refused: list[m.Refusal] = []

    def attempt(kind: str, name: str, action: Callable[[], list[Effect]]) -> list[Effect]:
        try:
            return action()
        except FabricError as error:
            refused.append(m.Refusal(kind, name, error.code, str(error)))
            return []

    for claim in message.claims:
        effects += attempt(
            "rank", rank_key(claim.group, claim.rank), partial(_restore_claim, tables, session, claim, now)
        )
    for key, value in message.ephemerals.items():
        effects += attempt("key", key, partial(_restore_key, tables, session, key, value))
    for held in message.ranges:
        effects += attempt("range", held.name, partial(_restore_range, tables, session, held))
    snapshots: list[Effect] = []
    for watch, prefix in message.watches.items():
        snapshots += attempt("watch", prefix, partial(_restore_watch, tables, session, watch, prefix))
    reply = Send((session.connection,), m.Restored(keyspace.revision, tuple(refused)))
    return [reply, *effects, *snapshots]


def _drop_unlisted(tables: StoreTables, session: Session, message: m.Restore) -> list[Effect]:
    listed = {rank_key(claim.group, claim.rank) for claim in message.claims} | set(message.ephemerals)
    effects = [effect for key in list(session.keys) if key not in listed for effect in tables.remove(key)]
    for name in session.ranges - {held.name for held in message.ranges}:
        tables.ranges.release(name, session.id)
        session.ranges.remove(name)
    tables.watches.end_all(session.id)
    return effects


def _restore_claim(tables: StoreTables, session: Session, claim: m.RestoredClaim, now: float) -> list[Effect]:
    return tables.claim(session, claim, claim.rank, now)[1]


def _restore_key(tables: StoreTables, session: Session, key: str, value: bytes) -> list[Effect]:
    check_key(key)
    check_value(key, value)
    check_writer(tables.ranks, key, session.id)
    entry = tables.keyspace.get(key)
    if entry is not None and entry.owner != session.id:
        raise Duplicated(f"key {shown(key)} was written by another member meanwhile")
    if entry is not None and entry.claim is not None:
        raise Duplicated(f"key {shown(key)} is a rank of group {shown(entry.claim[0])}")
    return tables.put(key, value, session)


def _restore_range(tables: StoreTables, session: Session, held: m.RestoredRange) -> list[Effect]:
    check_key(held.name, "range name")
    check_member(tables.ranks, held.name, session.id, "range")
    if len(session.ranges) >= MAX_RANGES:
        raise NoResources(f"range {shown(held.name)}: this member holds {MAX_RANGES} ranges, the most it can")
    tables.ranges.restore(held.name, held.base, held.size_bytes, session.id)
    session.ranges.add(held.name)
    return []


def _restore_watch(tables: StoreTables, session: Session, watch: int, prefix: str) -> list[Effect]:
    check_prefix(prefix)
    is_member = tables.is_member(session.id)
    tables.watches.check_room(session.id, watch, prefix, is_member=is_member)
    entries = tables.keyspace.under(prefix)
    tables.watches.start(session.id, watch, prefix, is_member=is_member)
    return [Send((session.connection,), m.WatchSnapshot(watch, tables.keyspace.revision, entries))]
