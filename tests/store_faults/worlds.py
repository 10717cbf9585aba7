"""Where a campaign takes place: which store there is, where it and the members run, and what can befall it.

`tcp` worlds have two programs that can run the store, one at a time; the other one is where it moves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from chaos.plan import environment
from store_faults.etcd_pulse import EtcdPulse
from store_faults.plan import SLOTS, UNSERVED_S, switched_off
from support import etcd
from support.etcd import EtcdCluster, EtcdNode
from support.hosts import Network
from support.places import Place
from support.ports import reserved_port
from support.workers import Cluster

MEMBERS = (
    "kill a member",
    "kill two members",
    "kill a stopped member",
    "stop a member briefly",
    "stop a member for long",
)
RESTARTS = ("restart the store", "stop the store")
MOVES = ("move the store",)
NODES = ("kill an etcd node", "stop an etcd node", "kill two etcd nodes")
FAULTS = {
    "restarts": MEMBERS + RESTARTS,
    "moves": MEMBERS + RESTARTS + MOVES,
    "etcd": MEMBERS + NODES,
    "hosts": MEMBERS + RESTARTS + MOVES,
}
HOSTS, PORT = 4, 9000  # the last one has the store, and the first program that can run it


class World:
    """`places`: of the members, in order of slot."""

    several_hosts = False

    def __init__(self, name: str, url: str, places: Sequence[Place] | None = None) -> None:
        self.name = name
        self.url = url  # where the store is now, or will be
        self.places = places
        self.faults = frozenset(FAULTS[name]) - switched_off()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Inside the block this thread reaches the store."""
        yield

    def complaint(self) -> str:
        """What has died though nobody killed it."""
        return ""

    def take_unserved(self) -> list[tuple[float, float]]:
        """From when to when the store served nobody, since the last call."""
        return []

    def report(self) -> str:
        return "is an etcd"


class TcpWorld(World):
    def __init__(
        self, name: str, urls: Sequence[str], programs: Cluster, network: Network | None, places: Sequence[Place] | None
    ) -> None:
        super().__init__(name, urls[0], places)
        self.several_hosts = network is not None
        self.urls = urls
        self.programs = programs
        self.active = 0  # the program that runs the store
        self.well = True
        self._network = network
        programs.call(0, "serve", urls[0])

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._network.hosts[-1].entered() if self._network is not None else contextlib.nullcontext():
            yield

    def complaint(self) -> str:
        return "" if not self.well or self.programs.alive(self.active) else "the store has died, and nobody killed it"

    def report(self) -> str:
        return "\n".join(
            self.programs.report(index, "has these stacks and this output") for index in range(len(self.urls))
        )


class EtcdWorld(World):
    def __init__(self, cluster: EtcdCluster) -> None:
        super().__init__("etcd", cluster.url())
        self.cluster = cluster
        self.pulse = EtcdPulse(cluster.nodes)
        self.pulse.start()

    @property
    def nodes(self) -> list[EtcdNode]:
        return self.cluster.nodes

    def take_unserved(self) -> list[tuple[float, float]]:
        return self.pulse.take_spans(UNSERVED_S)


@contextmanager
def opened(name: str) -> Iterator[World]:
    with ExitStack() as stack:
        if name == "etcd":
            world = EtcdWorld(stack.enter_context(etcd.running(3)))
            stack.callback(world.pulse.stop)
            yield world
            return
        network = stack.enter_context(Network(HOSTS)) if name == "hosts" else None
        if network is None:
            urls = [f"tcp://127.0.0.1:{stack.enter_context(reserved_port())}" for _ in range(2)]
            store_places, places = None, None
        else:
            stores = [network.hosts[HOSTS - 1], network.hosts[0]]
            urls = [f"tcp://{host.address}:{PORT}" for host in stores]
            store_places, places = [host.place for host in stores], network.places(2)[:SLOTS]
        programs = Cluster(2, "store_faults.store_program", environment=environment(), places=store_places)
        yield TcpWorld(name, urls, stack.enter_context(programs), network, places)
