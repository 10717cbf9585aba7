"""The one way to a store: the scheme of its URL decides what kind of `Store` reaches it."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from memfabric_hybrid.store import store_users
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.interface import SessionCallback, Store
from memfabric_hybrid.store.limits import SESSION_ID_BYTES
from memfabric_hybrid.store.url import StoreUrl, parse_url


def new_session() -> bytes:
    """A name for a participant, which nobody else has."""
    return secrets.token_bytes(SESSION_ID_BYTES)


def connect(
    url: StoreUrl | str,
    *,
    on_session: SessionCallback | None = None,
    before_reconnect: Callable[[], object] | None = None,
    session: bytes | None = None,
) -> Store:
    """A participant of the store at `url`. It talks to the store with its first call, not yet here.

    `before_reconnect` runs before every attempt that follows a failure, on whichever thread makes it, one at a time:
    a member that may run the store itself starts it there. `session` (from `new_session`) is the participant's name in
    the store, for who must know it beforehand. InvalidParam: no URL.

    An etcd runs by itself: nobody here starts it, and `before_reconnect` is not called for one.
    """
    parsed = parse_url(url) if isinstance(url, str) else url
    user: Store
    if parsed.scheme == "etcd":
        from memfabric_hybrid.store.etcd.store import EtcdStore  # here: others never need it

        user = EtcdStore(parsed, on_session=on_session, session=session)
    else:
        user = StoreClient(parsed, on_session=on_session, before_reconnect=before_reconnect, session=session)
    store_users.enter(user)
    return user
