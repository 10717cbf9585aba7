"""A store whose messages and bytes are counted, in a program of its own; it writes down what its last member said, too.

    counted_store.py URL

Prints "ready null". Reads lines of JSON: "mark" begins to count anew, "since" tells what was counted, "script" what the
last newcomer said since the mark (see `simulated_store.py`). Heartbeats are left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, cast

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.frames import HEADER, HEADER_BYTES
from memfabric_hybrid.store.server.peer import Peer
from memfabric_hybrid.store.server.server import StoreServer
from memfabric_hybrid.store.state.effects import ConnectionId, Effect


class Traffic:
    """Of one connection, or of several."""

    def __init__(self) -> None:
        self.requests = self.request_bytes = self.messages = self.message_bytes = 0

    def __iadd__(self, other: Traffic) -> Traffic:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


class CountedTransport:
    """Counts whole messages on their way out; everything else is the transport's."""

    def __init__(self, transport: asyncio.Transport, server: CountedServer, number: ConnectionId) -> None:
        self._transport, self._server, self._number = transport, server, number

    def write(self, data: bytes) -> None:
        traffic = self._server.traffic_of(self._number)
        traffic.message_bytes += len(data)
        start = 0
        while start < len(data):
            start += HEADER_BYTES + HEADER.unpack_from(data, start)[0]
            traffic.messages += 1
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CountedPeer(Peer):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = cast(CountedServer, self.server)
        counted = CountedTransport(cast(asyncio.Transport, transport), server, self.number)
        server.said.append((self.number, None))
        super().connection_made(cast(asyncio.Transport, counted))


class CountedServer(StoreServer):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.mark()
        self._heard = self.state.message
        self.state.message = self._hear  # type: ignore[method-assign]

    def mark(self) -> None:
        self._traffic: dict[ConnectionId, Traffic] = {}
        self.said: list[tuple[ConnectionId, m.Request | None]] = []  # None: it has come
        self._old = set(self.peers)

    def traffic_of(self, number: ConnectionId) -> Traffic:
        return self._traffic.setdefault(number, Traffic())

    def since(self) -> dict[str, Any]:
        """Of those who came after the mark, and of those who were there."""
        new, old = Traffic(), Traffic()
        for number, traffic in list(self._traffic.items()):
            if number in self._old:
                old += traffic
            else:
                new += traffic
        return {"new": vars(new), "old": vars(old)}

    def script(self) -> list[list[Any]]:
        return [[number, None if said is None else m.encode(said).hex()] for number, said in self.said]

    def _hear(self, connection: ConnectionId, message: m.Request, now: float) -> list[Effect]:
        if type(message) is not m.Heartbeat:
            traffic = self.traffic_of(connection)
            traffic.requests += 1
            traffic.request_bytes += len(m.framed(message))
            if connection not in self._old:
                self.said.append((connection, message))
        return self._heard(connection, message, now)

    def _new_peer(self) -> asyncio.Protocol:
        return CountedPeer(self, next(self._numbers))


def main() -> None:
    server = CountedServer(sys.argv[1])
    server.start()
    print("ready null", flush=True)
    for line in sys.stdin:
        print("ready", json.dumps(getattr(server, json.loads(line))()), flush=True)
    server.stop()


if __name__ == "__main__":
    main()
