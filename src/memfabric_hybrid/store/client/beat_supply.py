"""Heartbeats for a TLS connection, encrypted ahead, so that the native thread that sends them needs no interpreter.

TLS 1.3 numbers its records and says no time in them: a record that is encrypted now and sent in ten minutes, in its
turn, is as good as a fresh one, and nobody else can make it. On an event channel nothing but heartbeats is written
after the hand-over, so the turn is certain. Decision 0015 has the alternatives. Used by the event thread only.
"""

from __future__ import annotations

from typing import Protocol

from memfabric_hybrid.store.client.tls_socket import TlsSocket
from memfabric_hybrid.store.messages import HEARTBEAT_FRAME

SUPPLY_S = 600.0  # a process whose interpreter does nothing for so long stops beating
MAX_BEATS = 4096
LOOK_S = 1.0  # between looks whether to make more


class FedHeartbeat(Protocol):
    @property
    def beats_left(self) -> int: ...

    def add(self, beats: bytes) -> None: ...


class BeatSupply:
    def __init__(self, tls: TlsSocket, interval_ms: int, beat: bytes = HEARTBEAT_FRAME) -> None:
        self._tls = tls
        self._beat = beat
        self._count = max(2, min(MAX_BEATS, int(SUPPLY_S * 1000 / interval_ms)))
        self.first = tls.encrypted_ahead(beat, self._count)
        self.beat_bytes = len(self.first) // self._count

    def refill(self, heartbeat: FedHeartbeat) -> None:
        """When half of them are sent."""
        missing = self._count - heartbeat.beats_left
        if missing > self._count // 2:
            heartbeat.add(self._tls.encrypted_ahead(self._beat, missing))
