"""The store servers that run in this process, one per address.

`create_config_store`, the launcher and members that start the store share this register, so that the same address
asked for twice in one process is one server. Thread-safe.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

from memfabric_hybrid import logs
from memfabric_hybrid.errors import NotExist
from memfabric_hybrid.machine import forks
from memfabric_hybrid.store.url import StoreUrl

if TYPE_CHECKING:
    from memfabric_hybrid.store.server.server import StoreServer

PROBE_S = 1.0
NO_STORES = "[]"  # what `cluster_status` is where none runs
_log = logs.get(__name__)
_servers: dict[StoreUrl, StoreServer] = {}
_owners: dict[StoreUrl, set[str]] = {}
_lock = threading.Lock()


def host(url: StoreUrl, owner: str, *, first: bytes | None = None) -> None:
    """Starts the server, or shares the one that runs here. ResourceInUse when another process has the address.

    One that is started for the session `first` serves nobody else until `admit_all`. An etcd is run by its own
    programs: nothing happens, and programs that start whatever store they are given go on.
    """
    if url.scheme == "etcd":
        _log.info("store %s is an etcd: it runs by itself, and nothing is started here", url)
        return
    forks.notice()
    with _lock:
        if url in _servers and _servers[url].failure is not None:
            _servers.pop(url).stop()
        if url not in _servers:
            from memfabric_hybrid.store.server.server import StoreServer  # here: most members never run one

            server = StoreServer(url, first=first)
            server.start()
            _servers[url] = server
        _owners.setdefault(url, set()).add(owner)


def admit_all(url: StoreUrl, session: bytes) -> None:
    """The server was started for this session first, and now it serves all; otherwise nothing happens."""
    with _lock:
        if url in _servers:
            _servers[url].admit_all(session)


def release(url: StoreUrl, owner: str) -> None:
    """`owner` needs the server no more; the last one stops it. Nothing happens when it never owned one."""
    forks.notice()
    with _lock:
        owners = _owners.get(url, set())
        if owner not in owners:
            return
        owners.remove(owner)
        if owners:
            return
        del _owners[url]
        server = _servers.pop(url)
    server.stop()


def release_all(owner: str) -> None:
    """`owner` needs none of them: a member may have run the store at several places that it moved to."""
    forks.notice()
    with _lock:
        owned = [url for url, owners in _owners.items() if owner in owners]
    for url in owned:
        release(url, owner)


def cluster_status() -> str:
    """What each server of this process knows, as JSON. NotExist when none runs here."""
    forks.notice()
    with _lock:
        servers = list(_servers.values())
    if not servers:
        raise NotExist("this process runs no store: ask the one that does, or start one with create_config_store")
    return json.dumps([server.status() for server in servers])


def stop_all() -> None:
    """The process ends (or `uninitialize`): every server stops."""
    with _lock:
        servers = list(_servers.values())
        _servers.clear()
        _owners.clear()
    for server in servers:
        server.stop()


def abandon_after_fork() -> None:
    """In a forked child: the servers are the parent's; let go of their sockets."""
    global _lock
    _lock = threading.Lock()
    for server in _servers.values():
        server.abandon_after_fork()
    _servers.clear()
    _owners.clear()


def is_local(url: StoreUrl) -> bool:
    """True if this machine could listen at the URL's address; decided by binding a free port there.

    Never of an etcd: that is run by its own programs.
    """
    if url.scheme == "etcd":
        _log.info("store %s is an etcd: it runs by itself, and start_store means nothing", url)
        return False
    host_name, _ = url.endpoints[0]
    try:
        candidates = socket.getaddrinfo(host_name, 0, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return False  # whoever connects reports the unknown name, with its deadline
    for family, kind, protocol, _, address in candidates:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False


def somebody_listens(url: StoreUrl) -> bool:
    """Whether a connection to the address is accepted, by a store or by anything else."""
    host_name, port = url.endpoints[0]
    try:
        candidates = socket.getaddrinfo(host_name, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return False
    for family, kind, protocol, _, address in candidates:
        with socket.socket(family, kind, protocol) as probe:
            probe.settimeout(PROBE_S)
            try:
                probe.connect(address)
            except ConnectionRefusedError:
                continue
            except OSError:
                return True  # slow, or unreachable for a reason that whoever connects will report
            if probe.getsockname() != probe.getpeername():  # a connect to a free port can meet itself
                return True
    return False
