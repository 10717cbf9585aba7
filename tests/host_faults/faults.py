"""What can be wrong with a host, and what follows from it for each pair of ranks."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import NamedTuple

from host_faults.plan import HOSTS, LASTS_S, host_of, ranks_on
from support.hosts import Network
from support.workers import Cluster

FAR, NEAR = "to and from that host", "inside that host"


class Fault(NamedTuple):
    """`disturbs`: which pairs of ranks may fail meanwhile, besides those whose initiator is gone or stands still."""

    name: str
    begin: Callable[[Network, Cluster, int], None]
    end: Callable[[Network, Cluster, int], None]
    disturbs: tuple[str, ...]


class Round(NamedTuple):
    fault: Fault
    host: int
    lasts_s: float  # longer or shorter than the heartbeat time-out

    def may_fail(self, initiator: int, target: int) -> bool:
        ends = {host_of(initiator), host_of(target)}
        return self.host in ends and (FAR if len(ends) == 2 else NEAR) in self.fault.disturbs

    def __str__(self) -> str:
        return f"host {self.host} {self.fault.name} for {self.lasts_s:.1f} s"


def _cut(network: Network, cluster: Cluster, host: int) -> None:
    network.hosts[host].link_down()


def _slow(network: Network, cluster: Cluster, host: int) -> None:
    network.hosts[host].delay(20)
    network.hosts[host].loss(1)


def _heal(network: Network, cluster: Cluster, host: int) -> None:
    network.hosts[host].heal()


def _stop(network: Network, cluster: Cluster, host: int) -> None:
    for rank in ranks_on(host):
        cluster.kill(rank, signal.SIGSTOP)


def _go_on(network: Network, cluster: Cluster, host: int) -> None:
    for rank in ranks_on(host):
        cluster.kill(rank, signal.SIGCONT)


def _kill(network: Network, cluster: Cluster, host: int) -> None:
    for rank in ranks_on(host):
        cluster.kill(rank)


def _begin_anew(network: Network, cluster: Cluster, host: int) -> None:
    for rank in ranks_on(host):
        cluster.start(rank)


CUT = Fault("cut off", _cut, _heal, (FAR,))
SLOW = Fault("slow and lossy", _slow, _heal, ())
STOPPED = Fault("stopped", _stop, _go_on, (FAR, NEAR))
KILLED = Fault("killed", _kill, _begin_anew, (FAR, NEAR))
STORE_CUT = Fault("(the store's) cut off", _cut, _heal, ())
FAULTS = (CUT, SLOW, STOPPED, KILLED, STORE_CUT)
STORE_HOST = HOSTS


def rounds(seed: int, count: int) -> list[Round]:
    """All kinds come about as often, in any order."""
    choose = random.Random(seed)
    names: list[Fault] = []
    while len(names) < count:
        names += choose.sample(FAULTS, len(FAULTS))
    made = []
    for fault in names[:count]:
        host = STORE_HOST if fault is STORE_CUT else choose.randrange(HOSTS)
        made.append(Round(fault, host, choose.choice(LASTS_S)))
    return made
