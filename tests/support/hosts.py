"""Hosts for tests: network namespaces of this machine, joined by a switch, with faults on demand.

    with Network(3) as network:
        with Cluster(6, target="support.pool_worker", places=network.places(2)) as cluster:  # two workers on each host
            cluster.call(2, "take_part", f"tcp://{network.hosts[0].address}:9000")
            network.hosts[1].link_down()
            network.partition(network.hosts[0], network.hosts[2])
            network.heal()

The namespaces have no names: they are descriptors of the test process, and all that is in them goes with them. So two
networks never meet, whatever runs beside them, nothing of the machine's own network changes, and when the test process
dies, however, the kernel clears up: its descriptors are closed, its workers die with it. There is nothing that a later
run would have to find and remove, as there would be with namespaces that have names. For the same reason addresses,
devices and ports may be the same in every network.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import TracebackType

import pytest

from support import iproute, namespaces, places
from support.links import DEVICE, SWITCH, DelayLines, Link
from support.places import Place

needs_root = pytest.mark.needs_root("only root can make network namespaces")


class Host:
    """One network namespace with a loopback device and one cable, and an address of each family."""

    def __init__(self, index: int, network: int, link: Link) -> None:
        self.index = index
        self.address = f"10.77.0.{index + 1}"
        self.address6 = f"fd77::{index + 1:x}"
        self.network = network
        self._link = link

    @property
    def place(self) -> Place:
        """For a worker on this host."""
        return Place(self.network)

    def container(self, *, own_users: bool = True) -> Place:
        """For a worker in a container of its own on this host, with the host's network."""
        return places.container(self.network, own_users=own_users)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside the block this thread is here: sockets and processes that it makes belong to this host."""
        with namespaces.entered(self.network):
            yield

    def link_down(self) -> None:
        """As if the cable were pulled: nobody is told, nothing arrives."""
        self._link.down()

    def link_up(self) -> None:
        self._link.up()

    def delay(self, delay_ms: float, jitter_ms: float = 0.0) -> None:
        """Each frame from or to this host takes that much longer, ± the jitter, in order; 0 ends it."""
        self._link.delay(delay_ms, jitter_ms)

    def loss(self, percent: float) -> None:
        """So many of the frames from and to this host are lost; 0 ends it. TCP sends large pieces as one frame."""
        self._link.loss(percent)

    def rate(self, mbit: float | None) -> None:
        """That much per second in each direction; None ends it."""
        self._link.rate(mbit)

    def heal(self) -> None:
        """Nothing is wrong with this host's cable any more. Partitions end with those of the whole network."""
        self._link.heal()

    def __repr__(self) -> str:
        return f"<Host {self.index}, {self.address}>"


class Network:
    """Owns its hosts. Used by one thread."""

    def __init__(self, count: int) -> None:
        self.hosts: list[Host] = []
        self._count = count
        self._links: list[Link] = []
        self._partitions: list[set[Host]] = []
        self._owned = contextlib.ExitStack()

    def __enter__(self) -> Network:
        with contextlib.ExitStack() as undo:
            undo.push(self._owned)
            switch = self._new_namespace()
            delay_lines = self._owned.enter_context(DelayLines(switch))
            for index in range(self._count):
                namespace = self._new_namespace()
                mac = bytes([2, 0, 0, 0, *(index + 1).to_bytes(2, "big")])  # 2: an address that we may choose
                self._links.append(Link(index, namespace, switch, mac, delay_lines))
                self.hosts.append(Host(index, namespace, self._links[-1]))
            self._connect(switch)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owned.__exit__(kind, error, trace)

    def places(self, workers_per_host: int) -> list[Place]:
        """For a cluster: the first workers on the first host, the next ones on the next."""
        return [host.place for host in self.hosts for _ in range(workers_per_host)]

    def partition(self, one: Host, other: Host) -> None:
        """The two do not reach each other, though both reach everybody else."""
        self._partitions.append({one, other})
        self._apply_partitions()

    def heal(self) -> None:
        """Everybody reaches everybody, at once and whole."""
        self._partitions.clear()
        self._apply_partitions()
        for host in self.hosts:
            host.heal()

    def _apply_partitions(self) -> None:
        for host, link in zip(self.hosts, self._links, strict=True):
            cut_off = {
                self._links[other.index].mac for pair in self._partitions if host in pair for other in pair - {host}
            }
            link.refuse(cut_off)

    def _new_namespace(self) -> int:
        descriptor = namespaces.new_network()
        self._owned.callback(os.close, descriptor)
        return descriptor

    def _connect(self, switch: int) -> None:
        commands = [
            f"link add {SWITCH} type bridge mcast_snooping 0",
            f"link set {SWITCH} addrgenmode none up",
        ]
        for host, link in zip(self.hosts, self._links, strict=True):
            where = f"/proc/{os.getpid()}/fd/{host.network}"
            mac = link.mac.hex(":")
            commands += [
                f"link add {link.port} type veth peer name {DEVICE} address {mac} netns {where}",
                f"link set {link.port} addrgenmode none master {SWITCH}",
            ]
        iproute.ip(switch, commands)
        for host in self.hosts:
            iproute.ip(
                host.network,
                [
                    "link set lo up",
                    f"link set {DEVICE} addrgenmode none up",  # a link-local address would be probed for a second
                    f"addr add {host.address}/24 dev {DEVICE}",
                    f"addr add {host.address6}/64 dev {DEVICE} nodad",
                ],
            )
        iproute.ip(switch, [f"link set {link.port} up" for link in self._links])
        for link in self._links:
            link.settle()
