"""A store without sockets, joined by as many members as you like: what a real one said, said again by each of them.

The script is what `counted_store.py` wrote down while one real member joined. Everybody else says the same with a
session and a rank of its own, eight on each host. Connections are numbers; a message counts as sent when it is encoded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from memfabric_hybrid.store import limits
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Effect, Send
from memfabric_hybrid.store.state.machine import StoreState

CONNECTIONS_OF_ONE = 100  # numbers that a member may use
RANKS_OF_HOST = 8
HOST_KEY = re.compile("/[0-9a-f]{12}/")  # in the keys of facts
PAUSE_S = 1.0  # between members that join alone

Said = tuple[int, "m.Request | None"]  # connection; None: it has come


class Script:
    """`steps` by the member of `rank`, as they came."""

    def __init__(self, recorded: list[list[Any]], rank: int) -> None:
        numbers = {number: place for place, number in enumerate(dict.fromkeys(number for number, _ in recorded))}
        self._steps = [(numbers[number], said) for number, said in recorded]
        self._rank = rank

    def of(self, rank: int, size: int) -> Iterator[Said]:
        """The same in the words of another one, of a world of another size."""
        for place, said in self._steps:
            connection = rank * CONNECTIONS_OF_ONE + place
            yield (
                connection,
                None if said is None else self._in_words_of(rank, size, m.decode_request(bytes.fromhex(said))),
            )

    def _in_words_of(self, rank: int, size: int, message: m.Request) -> m.Request:
        for name in message.__struct_fields__:
            value = getattr(message, name)
            if isinstance(value, str):
                value = HOST_KEY.sub(f"/{rank // RANKS_OF_HOST:012x}/", value)
                is_own = value.endswith(f"/{self._rank}")
                setattr(message, name, f"{value.removesuffix(str(self._rank))}{rank}" if is_own else value)
        if isinstance(message, m.Hello):
            message.session = rank.to_bytes(limits.SESSION_ID_BYTES, "big")
        elif isinstance(message, m.ClaimRank):
            message.capacity = size
            message.wanted = rank
        return message


class SimulatedStore:
    def __init__(self, script: Script, size: int) -> None:
        self._state = StoreState("simulated")
        self._script = script
        self._size = size
        self._now = 0.0

    def join(self, rank: int) -> tuple[float, dict[str, dict[str, int]]]:
        """One more member, alone: every message is a turn of the loop.

        Seconds of CPU, all encoding included; and the traffic, counted as `counted_store.py` does.
        """
        self._now += PAUSE_S
        said = list(self._script.of(rank, self._size))
        sent: list[tuple[Sequence[int], int]] = []  # receivers and bytes
        began = time.thread_time()
        for connection, message in said:
            sent += [
                (effect.connections, len(m.framed(effect.message)))
                for effect in self._heard(connection, message)
                if isinstance(effect, Send)
            ]
        spent_s = time.thread_time() - began
        own = range(rank * CONNECTIONS_OF_ONE, (rank + 1) * CONNECTIONS_OF_ONE)
        requests = [len(m.framed(message)) for _, message in said if message is not None]
        to_own = [size_bytes for receivers, size_bytes in sent for one in receivers if one in own]
        to_others = [size_bytes for receivers, size_bytes in sent for one in receivers if one not in own]
        return spent_s, {
            "new": _traffic(requests, to_own),
            "old": _traffic([], to_others),
        }

    def fill(self, rank: int) -> None:
        """The same, without encoding what nobody counts."""
        self._now += PAUSE_S
        for connection, message in self._script.of(rank, self._size):
            self._heard(connection, message)

    def _heard(self, connection: int, message: m.Request | None) -> list[Effect]:
        if message is None:
            self._state.connected(connection, self._now)
            return []
        effects = self._state.message(connection, message, self._now)
        refusals = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, m.Refused)]
        if refusals:
            raise SystemExit(f"the simulated store refuses {message}: {refusals[0].message}")
        return [*effects, *self._state.changes(self._now)]


def _traffic(requests: list[int], messages: list[int]) -> dict[str, int]:
    return {
        "requests": len(requests),
        "request_bytes": sum(requests),
        "messages": len(messages),
        "message_bytes": sum(messages),
    }
