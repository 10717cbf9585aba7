"""Global exit: one rank's word that makes a handler run on every rank.

The word is a key of the store that everybody watches. It is written, and handlers run, on threads of ours: whoever
calls `announce` goes on at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from memfabric_hybrid import logs
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.store import WatchUpdate

log = logs.get(__name__)
ExitHandler = Callable[[int], object]


class GlobalExit:
    """The global exits of one object; `close()` ends them."""

    def __init__(self, node: Node, object_name: str, timeout_s: float, deadline: Deadline) -> None:
        self.handler: ExitHandler | None = None
        self._node = node
        self._prefix = f"{object_name.replace('/', '-')}-exit/"
        self._own = f"{self._prefix}{node.member.rank}-{node.member.instance}-"
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._heard: set[str] = set()
        self._keys: list[str] = []
        self._begun = False
        self._watch = node.member.store.watch(self._prefix, self._on_update, deadline=deadline)
        self._begun = True  # what was there before us is not meant for us

    def announce(self, status: int) -> None:
        """Any thread; does not wait for anybody."""
        key = f"{self._own}{next(self._numbers)}"
        self._keys.append(key)
        self._heard.add(key)
        self._node.notices.post(lambda: self._run(status))
        self._node.reannouncements.post(lambda: self._tell(key, status))

    def close(self, farewell: Deadline) -> None:
        self._watch.close()
        self.handler = None
        for key in self._keys:
            try:
                self._node.member.store.delete(key, deadline=farewell)
            except FabricError as failure:
                log.info("%s, and what follows it, stays until this process leaves the store: %s", key, failure)
                return

    def _tell(self, key: str, status: int) -> None:
        try:
            value = str(status).encode()
            self._node.member.store.set(key, value, deadline=Deadline(self._timeout_s), ephemeral=True)
        except FabricError as failure:
            log.error("the other ranks did not hear of the exit with status %d: %s", status, failure)

    def _on_update(self, update: WatchUpdate) -> None:
        """Store's event thread."""
        for key, value in update.entries.items():
            if value is None or key in self._heard:
                continue
            self._heard.add(key)
            if self._begun:
                self._hear(key, value)

    def _hear(self, key: str, value: bytes) -> None:
        try:
            status = int(value)
        except ValueError:
            log.warning("the store shows %r = %r, which is no exit of a rank", key, value[:32])
            return
        self._node.notices.post(lambda: self._run(status))

    def _run(self, status: int) -> None:
        handler = self.handler
        if handler is None:
            log.info("an exit with status %d, and no handler is registered", status)
        else:
            callbacks.run(f"the exit handler for status {status}", handler, status)
