"""What the state machine wants done, in this order: messages to connections, connections to close. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Union

from memfabric_hybrid.store.messages import ServerMessage

ConnectionId = int


class Send(NamedTuple):
    """One message, encoded once, to each of these connections."""

    connections: Sequence[ConnectionId]
    message: ServerMessage


class Close(NamedTuple):
    """End a connection; the state machine has forgotten it already."""

    connection: ConnectionId
    reason: str
    not_admitted: bool = False  # it lacks what the store wants to see: for the store's log, too


Effect = Union[Send, Close]  # noqa: UP007
