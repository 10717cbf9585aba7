"""Which life of the store this is: a random name in etcd, written by whoever finds none. It goes with etcd's data.

After that, members of the life before still hold their ranks and tell the new one when they notice. Until they have
had the time to, newcomers of other hosts wait with their claims, for as long as a leased key is there. On one host
nobody has to: there the rank socket of a living member is proof enough.
"""

from __future__ import annotations

import ipaddress
import math
import secrets

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import TimedOut
from memfabric_hybrid.store.etcd.feed import Feed
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.complaints import LeaseExists
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.limits import shown
from memfabric_hybrid.store.url import StoreUrl


def ttl_s(heartbeat_timeout_s: float) -> int:
    """etcd counts whole seconds."""
    return max(1, math.ceil(heartbeat_timeout_s))


def find(scope: Scope, heartbeat_timeout_s: float, until: float) -> tuple[str, int]:
    """The incarnation, and etcd's revision at that moment. ConnectionLost, AnswerLate."""
    names, gateway = scope.names, scope.gateway
    look = [api.read(api.of_key(names.incarnation))]
    new = [api.put(names.incarnation, secrets.token_hex(8).encode())]
    found = gateway.ask_once(api.RANGE, api.of_key(names.incarnation), api.Found, until)
    if found.kvs:
        return found.kvs[0].value.decode(), found.header.revision
    if not is_one_host(gateway.endpoints.url):
        new.append(api.put(names.recovering, b"", _timer(scope, heartbeat_timeout_s, until)))
    body = api.transaction([api.is_absent(names.incarnation)], [*new, *look], look)
    outcome = gateway.ask_once(api.TXN, body, api.Outcome, until)
    kept = outcome.found(len(new) if outcome.succeeded else 0)
    return kept[0].value.decode(), outcome.header.revision


def is_one_host(url: StoreUrl) -> bool:
    """All of its endpoints can be reached from one host only."""
    return all(_is_loopback(host) for host, _ in url.endpoints)


def wait_for_recovery(scope: Scope, feed: Feed, group: str, deadline: Deadline) -> None:
    """Returns when it is known which ranks are free; TimedOut."""
    name = scope.names.recovering
    with feed.subscribed(name) as news:
        while scope.gateway.ask(api.RANGE, api.of_key(name), api.Found, deadline).kvs:
            if news.next(deadline) is None:
                raise TimedOut(
                    f"store {scope.gateway.endpoints.url} lost its data and waits for its members: no rank of "
                    f"{shown(group)} within {deadline.timeout_s:g} s"
                )


def _timer(scope: Scope, heartbeat_timeout_s: float, until: float) -> int:
    """A lease that nobody keeps alive."""
    lease = secrets.randbits(62) or 1
    body = {"TTL": ttl_s(heartbeat_timeout_s), "ID": lease}
    try:
        scope.gateway.ask_once(api.GRANT, body, api.Lease, until)
    except LeaseExists:  # from an attempt whose answer was lost
        return lease
    return lease


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
