"""The two connections that keep a session: one brings the events, on the other a native thread keeps the lease alive.

Both lead to the same endpoint. The heartbeat is an HTTP request of fixed bytes, so it needs no interpreter: a program
that computes for seconds without giving others a turn does not lose its lease. Used by the event thread only.
"""

from __future__ import annotations

import select

from memfabric_hybrid import clock
from memfabric_hybrid.store.client.beat_supply import LOOK_S, BeatSupply
from memfabric_hybrid.store.client.connection import ConnectionLost
from memfabric_hybrid.store.client.event_channel import BEATS_PER_TIMEOUT, HeartbeatFactory, RunningHeartbeat
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.complaints import Compacted, raised_by
from memfabric_hybrid.store.etcd.gateway.connection import EtcdConnection
from memfabric_hybrid.store.etcd.gateway.http_answers import Piece
from memfabric_hybrid.store.etcd.scope import Scope


class Channel:
    """`open` first; `close` is called whatever happens."""

    def __init__(self, scope: Scope, heartbeat_timeout_s: float, heartbeat_factory: HeartbeatFactory) -> None:
        self._scope = scope
        self._silence_s = heartbeat_timeout_s / 2  # without an answer: time enough to save the lease elsewhere
        self._interval_ms = max(1, int(heartbeat_timeout_s * 1000 / BEATS_PER_TIMEOUT))
        self._heartbeat_factory = heartbeat_factory
        self.endpoint = scope.gateway.endpoints.in_order[0]
        self._connections: list[EtcdConnection] = []  # for the events, and for the heartbeats
        self._lines = b""  # of the watch, not complete yet
        self._arrived: list[api.Seen] = []
        self._answer = b""  # to a heartbeat, not complete yet
        self._heard_at = clock.now()
        self._heartbeat: RunningHeartbeat | None = None
        self._beats: BeatSupply | None = None

    def open(self, first_revision: int, until: float) -> None:
        """ConnectionLost, AnswerLate; Compacted: the events from that revision on are not there any more."""
        for _ in range(2):
            self._connections.append(self._scope.gateway.endpoints.connect(self.endpoint, until))
        events, life = self._connections
        create = {"create_request": {**api.of_prefix(self._scope.names.root), "start_revision": first_revision}}
        events.send(api.WATCH, api.encode(create), until)
        while not any(seen.created for seen in self._arrived):
            self._take(events.receive(until))
        self._start_heartbeat(life)
        self._heard_at = clock.now()

    def _start_heartbeat(self, life: EtcdConnection) -> None:
        beat = life.request(api.KEEP_ALIVE, api.encode({"ID": self._scope.lease}))
        if life.tls is None:
            self._heartbeat = self._heartbeat_factory(life.fd, beat, self._interval_ms)
        else:
            self._beats = supply = BeatSupply(life.tls, self._interval_ms, beat)
            self._heartbeat = self._heartbeat_factory(life.fd, supply.first, self._interval_ms, supply.beat_bytes)

    def next(self, wake_fd: int) -> list[api.Seen]:
        """What has come, perhaps nothing, after a while or when `wake_fd` is readable. ConnectionLost, Compacted."""
        events, life = self._connections
        if not self._arrived:
            poll = select.poll()
            for fd in (events.fd, life.fd, wake_fd):
                poll.register(fd, select.POLLIN)
            poll.poll(LOOK_S * 1000)
        self._hear(life)
        if self._beats is not None and self._heartbeat is not None:
            self._beats.refill(self._heartbeat)
        self._take(events.receive_now())
        arrived, self._arrived = self._arrived, []
        return arrived

    def _hear(self, life: EtcdConnection) -> None:
        """The answers to heartbeats."""
        for piece in life.receive_now():
            self._answer += piece.data
            if piece.is_last:
                answer, self._answer = self._answer, b""
                if piece.status != 200:
                    raise ConnectionLost(f"a heartbeat was refused: {raised_by(piece.status, answer, 'etcd')}")
                if api.decode(answer, api.KeptAlive).result.TTL <= 0:
                    raise ConnectionLost("the lease is over")
                self._heard_at = clock.now()
        if clock.now() - self._heard_at > self._silence_s:
            raise ConnectionLost(f"no answer to heartbeats for {self._silence_s:g} s")

    def _take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.status != 200:
                raise ConnectionLost(f"the watch was refused: {raised_by(piece.status, piece.data, 'etcd')}")
            *lines, self._lines = (self._lines + piece.data).split(b"\n")
            self._arrived += [_checked(api.decode(line, api.Watched)) for line in lines if line]
            if piece.is_last:
                raise ConnectionLost("etcd ended the watch")

    def abort(self) -> None:
        """From any thread: whoever waits for events gets ConnectionLost."""
        for connection in self._connections:
            connection.abort()

    def close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None  # kept nowhere else: letting go of it closes its descriptors
        for connection in self._connections:
            connection.close()

    def abandon_after_fork(self) -> None:
        """In a forked child: close our copies; the heartbeat lets go of its own."""
        self._heartbeat = None
        for connection in self._connections:
            connection.close()


def _checked(line: api.Watched) -> api.Seen:
    if line.result is None:
        raise ConnectionLost(f"the watch failed: {line.error}")
    if line.result.compact_revision:
        raise Compacted(f"etcd has compacted its history up to {line.result.compact_revision}")
    if line.result.canceled:
        raise ConnectionLost(f"etcd ended the watch: {line.result.cancel_reason}")
    return line.result
