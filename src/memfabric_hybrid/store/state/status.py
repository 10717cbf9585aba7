"""What a store has to say of itself to whoever runs it: who is here, and how much it holds. Pure."""

from __future__ import annotations

from memfabric_hybrid.store.state.machine import StoreState


def status_of(state: StoreState) -> dict[str, object]:
    """As JSON can say it. Bytes are those that the limits count (`limits.py`), by kind of key."""
    tables = state.tables
    sessions = tables.sessions.ids()
    return {
        "incarnation": state.incarnation,
        "clusters": {
            name.removesuffix("/ranks"): {"world_size": capacity, "ranks": ranks}
            for name, (capacity, ranks) in tables.ranks.claimed().items()
        },
        "sessions": len(sessions),
        "connections": {"requests": state.request_connections, "events": len(sessions), "not_greeted": state.strangers},
        "keys": len(tables.keyspace),
        "bytes": {kind.rstrip("'"): size_bytes for kind, size_bytes in tables.keyspace.bytes_of.items()},
        "revision": tables.keyspace.revision,
        "watches": sum(len(tables.watches.of(session)) for session in sessions),
    }
