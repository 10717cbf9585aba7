"""What arrives on a link."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from memfabric_hybrid._native import Link

NUMBER = struct.Struct("!Q")  # every packet begins with it; an answer repeats the number of its request


class Packet(NamedTuple):
    """`content` is b"" when the link is over. Whoever gets it owns the descriptors, none of which is inherited.

    `fds_lost`: there were more descriptors than this process has numbers for; `fds` is empty then.
    """

    content: bytes
    fds: Sequence[int]
    fds_lost: bool

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def receive(link: Link) -> Packet | None:
    """None when there is nothing. Never waits."""
    received = link.receive()
    return None if received is None else Packet(*received)
