"""Where a worker runs: on a host of its own (`support.hosts`), in a container, or, as usual, beside the test.

A container has its own numbers of processes, with the worker as number 1 and a /proc that knows no other, and, unless
`own_users` is False, its own users, of which there is only root. It shares files, and the network of its place. When
the worker dies the kernel kills everything that it started. Signals that it does not handle do not reach a number 1,
except SIGKILL and SIGSTOP.
"""

from __future__ import annotations

from typing import NamedTuple

from support import namespaces


class Place(NamedTuple):
    """The descriptor of a network namespace, or the test's own network; the namespaces of a container, or none."""

    network: int | None = None
    own_pids: bool = False
    own_users: bool = False


BESIDE_THE_TEST = Place()


def container(network: int | None = None, *, own_users: bool = True) -> Place:
    return Place(network, own_pids=True, own_users=own_users)


def go_to(place: Place) -> None:
    """In a process without threads: its next child is at that place. The network comes first: it takes our powers."""
    if place.network is not None:
        namespaces.enter_network(place.network)
    if place.own_users:
        namespaces.unshare(namespaces.NEW_USERS)
        namespaces.map_only_root()
    if place.own_pids:
        namespaces.unshare(namespaces.NEW_PIDS | namespaces.NEW_MOUNTS)


def settle_in(place: Place) -> None:
    """In that child, when it does not need to see the processes outside any more."""
    if place.own_pids:
        namespaces.mount_own_proc()
