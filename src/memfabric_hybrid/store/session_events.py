"""What a participant learns about its session with the store. Delivered on the event thread; must not block."""

from __future__ import annotations

from typing import Union

import msgspec

from memfabric_hybrid.store.messages import Refusal


class SessionConnected(msgspec.Struct, frozen=True):
    """The session began."""

    incarnation: str


class SessionLost(msgspec.Struct, frozen=True):
    """The store is away; reconnecting goes on until the participant closes."""

    reason: str


class SessionRestored(msgspec.Struct, frozen=True):
    """The store is back and has everything again, except what `refused` names: others have that now."""

    incarnation: str
    refused: tuple[Refusal, ...]


class SessionFailed(msgspec.Struct, frozen=True):
    """The participant itself cannot follow the store any more: it hears nothing until it is made anew."""

    reason: str


SessionEvent = Union[SessionConnected, SessionLost, SessionRestored, SessionFailed]  # noqa: UP007
