"""Events of etcd on their way to watches and to calls that wait, in order of revision. The event thread's only."""

from __future__ import annotations

from itertools import groupby

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks
from memfabric_hybrid.store.etcd.feed import Feed
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.key_requests import entries_of
from memfabric_hybrid.store.etcd.scope import Scope


class Delivery:
    def __init__(self, scope: Scope, watch_callbacks: WatchCallbacks, feed: Feed) -> None:
        self.incarnation = ""
        self.revision = 0  # the last one whose events were delivered
        self._scope = scope
        self._watch_callbacks = watch_callbacks
        self._feed = feed

    def snapshot(self, number: int, until: float) -> None:
        """For a watch that begins, or begins anew. What follows it comes as events: nothing is delivered meanwhile."""
        prefix = self._watch_callbacks.prefixes().get(number)
        if prefix is None:
            return
        what = api.of_prefix(self._scope.names.key(prefix))
        found = self._scope.gateway.ask_once(api.RANGE, what, api.Found, until)
        entries = entries_of(self._scope, prefix, found)
        self._watch_callbacks.deliver(m.WatchSnapshot(number, found.header.revision, entries), self.incarnation)

    def deliver(self, seen: api.Seen) -> None:
        """One push for each revision: a watch whose snapshot is newer than some of them gets the others only."""
        names = self._scope.names
        for revision, group in groupby(seen.events, key=lambda event: event.kv.mod_revision):
            events = list(group)
            self._feed.publish(revision, events)
            changes = {names.key_of(e.kv.key): e.value for e in events if e.kv.key.startswith(names.keys)}
            for prefix in set(self._watch_callbacks.prefixes().values()) if changes else ():
                concerned = {key: value for key, value in changes.items() if key.startswith(prefix)}
                if concerned:
                    self._watch_callbacks.deliver(m.Changed(prefix, revision, concerned), self.incarnation)
            self.revision = revision
