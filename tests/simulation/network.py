"""Connections of simulated processes to the store, as TCP makes them: in order, late, cut, reset, half open.

What is sent while the way is cut arrives when it is whole again. Who sends and hears no acknowledgement for too long
gives up by itself (TCP_USER_TIMEOUT, event channels only). A process that is stopped reads nothing; its kernel does.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.dialer import CONNECT_TIMEOUT_S, RETURN_TIMEOUT_S
from simulation.task import Steps, Task
from simulation.world import FOREVER

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.server import Server

FIRST_SYN_PAUSE_S = 1.0  # of the kernel between its first two calls; twice as long each time
KEEPALIVE_S = 5.0  # until the store's kernel has noticed that nobody is at the other end; two minutes in earnest
HEARTBEAT = m.Heartbeat()


class _End:
    """FIN, or RST: nothing comes behind it."""

    def __repr__(self) -> str:
        return "the end"


END: Final = _End()
Parcel = m.Request | m.ServerMessage | _End


class Lost(Exception):
    """The connection is over."""


class Late(Exception):
    """No answer in time."""


class Connection:
    """One side is a process's, the other the server's."""

    __slots__ = (
        "_down_at", "_held_beat", "_held_down", "_held_up", "_inbox", "_reader", "_unacknowledged",
        "_up_at", "asked", "host", "incarnation", "is_client_open", "is_server_open", "is_silent", "number", "process",
        "role", "server", "world",
    )  # fmt: skip

    def __init__(self, process: Process, server: Server, role: int) -> None:
        self.process = process
        self.host = process.host
        self.world = process.world
        self.server = server
        self.role = role
        self.number = server.new_number()
        self.incarnation = ""
        self.is_client_open = self.is_server_open = False
        self.is_silent = False  # nobody reads it or beats on it any more, and it is not closed
        self.asked: m.Request | None = None  # the last request that the server has heard
        self._inbox: deque[Parcel] = deque()  # in the client's kernel
        self._reader: Task | None = None
        self._up_at = self._down_at = 0.0  # when what was sent last arrives
        self._held_up: list[Parcel] = []  # the way was cut when they should have arrived
        self._held_down: list[Parcel] = []
        self._held_beat = False
        self._unacknowledged = 0  # counts the times from which on nothing was acknowledged; 0: all is

    def __repr__(self) -> str:
        return f"connection {self.number} of {self.process}"

    # --- the client's side ------------------------------------------------------------------------------------------

    def open(self, until: float, returning: bool) -> Steps[None]:
        """Lost when nobody listens there or the way is cut, as the kernel says it."""
        world = self.world
        limit = min(until, world.now + (RETURN_TIMEOUT_S if returning else CONNECT_TIMEOUT_S))
        if limit <= world.now:
            raise Late
        self._reader = self.process.current
        self.is_client_open = True
        self.host.connections[self.number] = self
        self.process.connections[self.number] = self
        world.after(self._delay_s(), self._call, FIRST_SYN_PAUSE_S)
        is_accepted = yield limit
        self._reader = None
        if not is_accepted:
            self._end_client_side()
            self.world.after(self._delay_s(), self._end_server_side)
            raise Lost

    def send(self, message: m.Request) -> None:
        if not self.is_client_open:
            raise Lost
        if self.host.is_up_cut or self.host.is_down_cut:
            self._await_acknowledgement()
        self._send_up(message)

    def receive(self, until: float) -> Steps[m.ServerMessage]:
        while not self._inbox:
            if not self.is_client_open or self.is_silent:
                raise Lost
            if self.world.now >= until:
                raise Late
            self._reader = self.process.current
            yield until
            self._reader = None
        parcel = self._inbox.popleft()
        if isinstance(parcel, _End):
            self.close()
            raise Lost
        return parcel  # type: ignore[return-value]  # only the server's messages come this way

    def beat(self) -> None:
        """The heartbeat thread: nothing else is sent on an event channel after the hand-over, so it overtakes none."""
        host = self.host
        if self.process.is_stopped:
            return
        if host.is_up_cut or host.is_down_cut:
            self._await_acknowledgement()
        if host.is_up_cut or self._held_up or self._held_beat:
            self._held_beat = True
        elif self.is_server_open:
            self.server.receive(self, HEARTBEAT)

    def close(self) -> None:
        if self.is_client_open:
            self._end_client_side()
            self._send_up(END)

    def abort(self) -> None:
        """The same, and whoever reads it hears so."""
        self.close()
        self.world.after(0.0, self._wake_reader)

    def fall_silent(self) -> None:
        """The server notices nothing yet."""
        self.is_silent = True
        self._inbox.clear()
        self.world.after(0.0, self._wake_reader)

    def reset(self, server_knows_after_s: float) -> None:
        """Somebody on the way ends it; the client hears of it first."""
        if self.is_client_open:
            self._end_client_side()
            self._wake_reader()
            self.world.after(server_knows_after_s, self._end_server_side)

    def drop(self) -> None:
        """The host has lost power: nobody says goodbye."""
        if self.is_client_open:
            self._vanish()

    def _vanish(self) -> None:
        """The client's kernel knows it no more, and the server is not told."""
        self._end_client_side()
        self.world.after(KEEPALIVE_S, self._end_server_side)

    def _end_client_side(self) -> None:
        self.is_client_open = False
        self._inbox.clear()
        self.process.connections.pop(self.number, None)
        self._forget_if_over()

    def _await_acknowledgement(self) -> None:
        if self.role == m.EVENTS and not self._unacknowledged:
            self._unacknowledged = self.world.events
            limit_s = max(1.0, self.process.heartbeat_timeout_s)
            self.world.after(limit_s, self._give_up_if, self._unacknowledged)

    def _give_up_if(self, since: int) -> None:
        if self._unacknowledged == since and self.is_client_open:
            self._vanish()
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None:
            self._reader.wake()

    # --- the way ----------------------------------------------------------------------------------------------------

    def _delay_s(self) -> float:
        return self.host.delay_s * (0.5 + self.world.random.random())

    def _call(self, pause_s: float) -> None:
        """The client's SYN arrives, or does not."""
        if not self.is_client_open:
            return
        if self.host.is_cut:
            self.world.after(pause_s, self._call, 2 * pause_s)
        elif self.server.accept(self):
            self.is_server_open = True
            self.world.after(self._delay_s(), self._called, True)
        else:
            self.world.after(self._delay_s(), self._called, False)

    def _called(self, accepted: bool) -> None:
        if self._reader is not None and self.is_client_open:
            self._reader.wake(accepted)

    def _send_up(self, parcel: Parcel) -> None:
        world = self.world
        self._up_at = max(self._up_at, world.now + self._delay_s())
        world.at(self._up_at, self._arrive_up, parcel)

    def _arrive_up(self, parcel: Parcel) -> None:
        if self.host.is_up_cut or self._held_up:
            self._held_up.append(parcel)
        elif parcel is END:
            self._end_server_side()
        elif self.is_server_open:
            self.server.receive(self, parcel)  # type: ignore[arg-type]

    def _end_server_side(self) -> None:
        if self.is_server_open:
            self.is_server_open = False
            self.server.ended(self)
        self._forget_if_over()

    def deliver(self, message: m.ServerMessage) -> None:
        """The server sends."""
        self._send_down(message)

    def close_at_server(self) -> None:
        """The server, or the end of its process, closes."""
        if self.is_server_open:
            self.is_server_open = False
            self._send_down(END)
            self._forget_if_over()

    def _send_down(self, parcel: Parcel) -> None:
        world = self.world
        self._down_at = max(self._down_at, world.now + self._delay_s())
        world.at(self._down_at, self._arrive_down, parcel)

    def _arrive_down(self, parcel: Parcel) -> None:
        if self.host.is_down_cut or self._held_down:
            self._held_down.append(parcel)
        elif self.is_client_open:
            self._inbox.append(parcel)
            reader = self._reader
            if reader is not None:
                reader.wake()

    def whole_again(self, delay_s: float) -> None:
        """The way is, and TCP notices after a while."""
        self._unacknowledged = 0
        if self._held_up or self._held_beat or self._held_down:
            self.world.after(delay_s, self._repeat)

    def _repeat(self) -> None:
        if not self.host.is_up_cut:
            parcels, self._held_up = self._held_up, []
            for parcel in parcels:
                self._arrive_up(parcel)
            if self._held_beat and not self._held_up:
                self._held_beat = False
                if self.is_client_open and self.is_server_open:
                    self.server.receive(self, HEARTBEAT)
        if not self.host.is_down_cut:
            parcels, self._held_down = self._held_down, []
            for parcel in parcels:
                self._arrive_down(parcel)

    def _forget_if_over(self) -> None:
        if not (self.is_client_open or self.is_server_open or self._held_up):
            self.host.connections.pop(self.number, None)


def exchange(connection: Connection, message: m.Request, until: float = FOREVER) -> Steps[m.ServerMessage]:
    connection.send(message)
    return (yield from connection.receive(until))
