"""A worker that joins two network devices like a long cable: each frame comes out at the other side, but later.

It stands in for `netem`, which many kernels are built without. Frames keep their order, and are passed on as the kernel
gave them to us: large ones that it would split later, and checksums that it would add later, stay so. Nothing else may
use the two devices. One thread for each direction of each line.
"""

from __future__ import annotations

import collections
import errno
import os
import random
import select
import socket
import threading
import time

from support import campaigns

_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 64 << 20
_MOST_BYTES = (64 << 10) + 128  # a frame that is not split yet, and the kernel's header
# The device is down, or its queue is full: the frame is lost, as on any network.
_LOST = (errno.ENETDOWN, errno.ENOBUFS, errno.EAGAIN, errno.ENXIO)

lines: dict[str, list[Direction]] = {}


class Direction(threading.Thread):
    """Owns neither socket, and one descriptor that ends it."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        super().__init__(name="delay line", daemon=True)
        self.delay_s = self.jitter_s = 0.0
        self._source = source
        self._target = target
        self._ended = os.eventfd(0)
        self._held: collections.deque[tuple[float, bytes]] = collections.deque()  # when it is due, the frame
        self._random = random.Random(campaigns.seed())

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        while True:
            wait_ms = max(0.0, self._held[0][0] - time.monotonic()) * 1000 if self._held else None
            ready = [descriptor for descriptor, _ in poll.poll(wait_ms)]
            if self._ended in ready:
                return
            if ready:
                self._take_in()
            self._send_what_is_due()

    def stop(self) -> None:
        os.eventfd_write(self._ended, 1)
        self.join()
        os.close(self._ended)

    def _take_in(self) -> None:
        while True:
            try:
                frame = self._source.recv(_MOST_BYTES, socket.MSG_DONTWAIT)
            except OSError as failure:
                if failure.errno in _LOST:  # nothing more is there, or the device went down
                    return
                raise
            due = time.monotonic() + max(0.0, self.delay_s + self._random.uniform(-self.jitter_s, self.jitter_s))
            self._held.append((max(due, self._held[-1][0]) if self._held else due, frame))

    def _send_what_is_due(self) -> None:
        now = time.monotonic()
        while self._held and self._held[0][0] <= now:
            try:
                self._target.send(self._held.popleft()[1])
            except OSError as failure:
                if failure.errno not in _LOST:
                    raise


def lay(first: str, second: str) -> None:
    """Joins two devices; the line has the name of the first."""
    ends = [_open(name) for name in (first, second)]
    lines[first] = [Direction(ends[0], ends[1]), Direction(ends[1], ends[0])]
    for direction in lines[first]:
        direction.start()


def set_delay(name: str, delay_ms: float, jitter_ms: float) -> None:
    """In each direction; counts for frames that come from now on."""
    for direction in lines[name]:
        direction.delay_s, direction.jitter_s = delay_ms / 1000, jitter_ms / 1000


def remove(name: str) -> None:
    """What is on its way is lost."""
    for direction in lines.pop(name):
        direction.stop()
        direction._source.close()


def _open(name: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # 0: nothing comes in before it is bound
    end.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    end.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    end.bind((name, _ALL_PROTOCOLS))
    return end
