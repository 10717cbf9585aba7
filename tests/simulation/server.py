"""The simulated server: what `store/server` does around the state machine, without sockets and threads.

It ticks, pushes, stalls, dies and is started anew, each time with another incarnation and nothing in its tables.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.server.server import TICK_S
from memfabric_hybrid.store.state.effects import Effect, Send
from memfabric_hybrid.store.state.machine import StoreState
from simulation.network import HEARTBEAT, Connection
from simulation.world import FOREVER, World

if TYPE_CHECKING:
    from simulation.invariants import Invariants


class Server:
    """`encodes`: messages go over the wire as bytes, as they do in earnest; otherwise nobody changes one after sending.
    `turn_s`: how long a turn of its event loop takes, at whose end pushes go out.
    """

    def __init__(self, world: World, encodes: bool, turn_s: float) -> None:
        self.world = world
        self.invariants: Invariants = None  # type: ignore[assignment]  # set before anything happens
        self.state: StoreState | None = None  # None: nobody listens at the address
        self.incarnation = 0
        self.started_at = 0.0
        self.has_heard_returning = False  # in this life: somebody was a member of an earlier one
        self.disturbed_until = 0.0  # FOREVER: now
        self.connections: dict[int, Connection] = {}
        self._encodes = encodes
        self._turn_s = turn_s
        self._numbers = itertools.count(1)
        self._is_stalled = False
        self._backlog: list[tuple[Connection, m.Request | None]] = []  # in its kernel while it stalls; None: the end
        self._accepted: list[Connection] = []  # by its kernel, while it stalls
        self._beating: dict[Connection, None] = {}  # the same for heartbeats, of which one says all
        self._armed = 0  # number of the tick that is due next
        self._tick_at = FOREVER
        self._push_at = FOREVER  # when pushes are due next

    def new_number(self) -> int:
        return next(self._numbers)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        world = self.world
        self.incarnation += 1
        self.state = StoreState(f"life {self.incarnation}")
        self.state.tables.recovery.begin(world.now)
        self.started_at = self.disturbed_until = world.now
        self.has_heard_returning = False
        world.note("the store starts:", self.state.incarnation)
        self._tick_and_arm()

    def kill(self) -> None:
        """The kernel closes its connections."""
        self.world.note("the store dies")
        self.state = None
        self._is_stalled = False
        self._accepted.clear()
        self._backlog.clear()
        self._beating.clear()
        self._armed += 1
        self._push_at = FOREVER
        self.disturbed_until = FOREVER
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.close_at_server()

    def stall(self) -> None:
        self.world.note("the store stalls")
        self._is_stalled = True
        self.disturbed_until = FOREVER

    def go_on(self) -> None:
        """An event loop may look at its timers first, or at its sockets."""
        if not self._is_stalled:
            return
        self.world.note("the store goes on")
        self._is_stalled = False
        self.disturbed_until = self.world.now
        assert self.state is not None
        for connection in self._accepted:
            self.state.connected(connection.number, self.world.now)
        self._accepted.clear()
        timers_first = self.world.random.random() < 0.5
        if timers_first:
            self._tick_and_arm()
        backlog, self._backlog = self._backlog, []
        beating, self._beating = self._beating, {}
        for connection, message in backlog:
            if message is None:
                self.ended(connection)
            elif connection.number in self.connections:
                self.receive(connection, message)
        for connection in beating:
            if connection.number in self.connections:
                self.receive(connection, HEARTBEAT)
        if not timers_first:
            self._tick_and_arm()

    @property
    def is_serving(self) -> bool:
        return self.state is not None and not self._is_stalled

    # --- connections ------------------------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> bool:
        """False: nobody listens. While it stalls its kernel accepts, and it learns of that later."""
        if self.state is None:
            return False
        connection.incarnation = self.state.incarnation
        self.connections[connection.number] = connection
        if self._is_stalled:
            self._accepted.append(connection)
        else:
            self.state.connected(connection.number, self.world.now)
        return True

    def ended(self, connection: Connection) -> None:
        """The other end is gone."""
        if self._is_stalled:
            self._backlog.append((connection, None))
        elif self.connections.pop(connection.number, None) is not None:
            assert self.state is not None
            self.invariants.before_end(connection)
            self.world.note(connection, "has ended")
            self._carry_out(self.state.disconnected(connection.number))
            self._after_events()

    def receive(self, connection: Connection, message: m.Request) -> None:
        if self._is_stalled:
            if message is HEARTBEAT:
                self._beating[connection] = None
            else:
                self._backlog.append((connection, message))
            return
        state = self.state
        assert state is not None
        if message is HEARTBEAT:
            if effects := state.message(connection.number, message, self.world.now):
                self._carry_out(effects)
            return
        if self._encodes:
            message = m.decode_request(m.encode(message))
        self.world.note(connection, "says", message)
        connection.asked = message
        if type(message) is m.Hello and message.returning:
            self.has_heard_returning = True
        self._carry_out(state.message(connection.number, message, self.world.now))
        if type(message) is m.Gather:
            self.invariants.gathers.arrived(message)
        self._after_events()

    # --- effects ----------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        connections = self.connections
        for effect in effects:
            if type(effect) is Send:
                message = effect.message
                if self._encodes:
                    message = m.decode_server_message(m.encode(message))
                for number in effect.connections:
                    connection = connections.get(number)
                    if connection is not None:
                        self.invariants.before_send(connection, message)
                        connection.deliver(message)
            else:
                connection = connections.pop(effect.connection, None)  # type: ignore[union-attr]
                if connection is not None:
                    self.world.note(connection, "is closed:", effect.reason)  # type: ignore[union-attr]
                    self.invariants.before_close(connection, effect.reason)  # type: ignore[union-attr]
                    connection.close_at_server()

    def _after_events(self) -> None:
        state = self.state
        assert state is not None
        if state.tables.watches.pending:
            self._push_when_due(state)
        if state.next_deadline < self._tick_at:
            self._arm(state.next_deadline)

    def _push_when_due(self, state: StoreState) -> None:
        """The one place where the state machine is asked when pushes are due, and for them."""
        at = max(state.next_push, self.world.now + self._turn_s)
        if at < self._push_at:
            self._push_at = at
            self.world.at(at, self._push, at)

    def _push(self, at: float) -> None:
        if at != self._push_at:
            return  # another one came before
        self._push_at = FOREVER
        if self.is_serving:  # otherwise `go_on` ticks, and that looks again
            assert self.state is not None
            self._carry_out(self.state.changes(self.world.now))
            self._after_events()

    def _tick(self, number: int) -> None:
        if number == self._armed and self.is_serving:
            self._tick_and_arm()

    def _tick_and_arm(self) -> None:
        assert self.state is not None
        now = self.world.now
        self._tick_at = now
        self._carry_out(self.state.tick(now))
        self.invariants.after_tick()
        self._arm(now + TICK_S)
        self._after_events()

    def _arm(self, at: float) -> None:
        self._armed += 1
        self._tick_at = at
        self.world.at(max(at, self.world.now), self._tick, self._armed)
