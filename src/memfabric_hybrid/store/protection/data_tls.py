"""TLS of what goes between hosts: with the certificates of the store's, or with those that a C program gives for data.

A node or an engine has one `DataTls` while it is open. The core encrypts by itself, whatever the interpreter does;
while anybody has one, a thread looks once a second whether certificates have changed.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from memfabric_hybrid import _native, settings
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.machine import forks
from memfabric_hybrid.machine.service_thread import THREAD_ENDS_S, ServiceThread
from memfabric_hybrid.store.protection import tls_configuration

if TYPE_CHECKING:
    from memfabric_hybrid.store.protection.tls_identity import TlsIdentity

LOOK_S = 1.0


class DataTls:
    """`identity` is None if data is not encrypted. InvalidParam for certificates or settings that cannot be used."""

    def __init__(self) -> None:
        identity = _configured()
        self.identity: _native.TlsIdentity | None = None
        if identity is not None:
            self.identity = identity.for_core()
            _renewal.begin(self, identity)

    @property
    def is_on(self) -> bool:
        return self.identity is not None

    def close(self) -> None:
        """Nobody begins a connection with it any more. Idempotent."""
        _renewal.end(self)


def _configured() -> TlsIdentity | None:
    given = tls_configuration.for_data.identity()
    if given is None and settings.data_tls_wanted():
        given = tls_configuration.process_wide.identity()
    return given


class _Renewal:
    """Looks after the certificates of all who encrypt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything below
        self._users: dict[DataTls, TlsIdentity] = {}
        self._thread: ServiceThread | None = None
        self._over = threading.Event()  # of that thread

    def begin(self, user: DataTls, identity: TlsIdentity) -> None:
        with self._lock:
            if self._thread is None:
                self._over = threading.Event()
                serve = functools.partial(self._look_after, self._over)
                thread = ServiceThread("memfabric-data-tls", serve, self._fail)
                thread.start()
                self._thread = thread
            self._users[user] = identity

    def end(self, user: DataTls) -> None:
        with self._lock:
            self._users.pop(user, None)
            thread = self._thread
            if self._users or thread is None:
                return
            self._thread = None
            self._over.set()
        thread.join(Deadline(THREAD_ENDS_S))

    def _look_after(self, over: threading.Event) -> None:
        while not over.wait(LOOK_S):
            with self._lock:
                identities = set(self._users.values())
            for identity in identities:
                identity.look()

    def _fail(self, reason: str) -> None:
        """Whoever comes next gets a new thread."""
        with self._lock:
            self._thread = None


_renewal = _Renewal()


def _in_forked_child() -> None:
    """The thread and its lock are the parent's."""
    global _renewal
    _renewal = _Renewal()


forks.in_child(_in_forked_child)
