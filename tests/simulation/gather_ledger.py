"""Collectives as their callers see them: complete with exactly their members, the same for all, or failed in time.

- Who completes gets one part of each rank: of a call to the same group and round, by that rank, its own among them.
- All who complete with the same calls get the same parts, and no call is part of two results.
- Who was refused by the store, on its only connection, is part of nobody's result.
- Every call ends by its deadline and the grace for the answer. It is the store that says so, unless something came
  between the two: nobody but the store knows who is missing.
- Who waits for a rank that is gone is told at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.client import ANSWER_GRACE_S
from memfabric_hybrid.store.state.rendezvous import Name, Rendezvous

if TYPE_CHECKING:
    from simulation.failed import Failed
    from simulation.member import Member
    from simulation.server import Server

_GONE_RANK = re.compile(r"rank (\d+) left or died")
# Duplicated: its predecessor with that rank has arrived, and the store has not heard that its connection is over.
CODES = (Code.TIMEOUT, Code.NOT_CONNECTED, Code.DUPLICATED)
SLACK_S = 1e-6
REMEMBERED = 20_000  # calls


class Call:
    __slots__ = ("began_at", "is_barrier", "member", "number", "refused", "request", "result", "until", "was_ready")

    def __init__(self, number: int, member: Member, request: m.Gather, began_at: float, until: float) -> None:
        self.number = number
        self.member = member
        self.request = request
        self.began_at = began_at
        self.until = until
        self.is_barrier = not request.data
        self.was_ready = member.client.is_ready  # the store knew the member when it began
        self.refused = False
        self.result: list[bytes] | None = None

    def __str__(self) -> str:
        request = self.request
        return f"gather {request.group!r} round {request.round} of {self.member} as rank {request.rank}"


class Expected(NamedTuple):
    """Who had its ranks when somebody began to wait there: their ends are told."""

    rendezvous: Rendezvous
    holders: dict[int, bytes]


class GatherLedger:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._world = server.world
        self._numbers = 0
        self._calls: dict[bytes, Call] = {}  # by the data that they bring
        self._open: dict[Call, None] = {}
        self._expected: dict[Name, Expected] = {}
        self._begun: dict[tuple[str, int], set[int]] = {}  # ranks that have called
        self.completed = self.failed = 0

    def begin(
        self, member: Member, group: str, round: int, rank: int, size: int, is_barrier: bool, until: float
    ) -> Call:
        self._numbers += 1
        data = b"" if is_barrier else self._numbers.to_bytes(6, "big")
        request = m.Gather(member.client.new_number(), group, round, rank, size, data, 0.0)
        call = Call(self._numbers, member, request, self._world.now, until)
        self._open[call] = None
        self._begun.setdefault((group, round), set()).add(rank)
        if len(self._begun) > REMEMBERED:
            del self._begun[next(iter(self._begun))]
        if data:
            self._calls[data] = call
            if len(self._calls) > REMEMBERED:
                del self._calls[next(iter(self._calls))]
        return call

    def complete(self, call: Call, reply: m.ServerMessage) -> None:
        self._end(call)
        self.completed += 1
        if isinstance(reply, m.Arrived):
            self._barrier(call, reply)
            return
        if not isinstance(reply, m.Gathered):
            self._world.fail(f"{call} is answered with {reply}")
        request = call.request
        if len(reply.parts) != request.size:
            self._world.fail(f"{call} has {len(reply.parts)} parts, of {request.size} ranks")
        for rank, part in enumerate(reply.parts):
            other = self._calls.get(part)
            if other is None:
                self._world.fail(f"{call}: the part of rank {rank} is {part!r}, which nobody brought")
            theirs = other.request
            if (theirs.group, theirs.round, theirs.rank) != (request.group, request.round, rank):
                self._world.fail(f"{call}: the part of rank {rank} was brought by {other}")
            if other.refused:
                self._world.fail(f"{call} has a part of {other}, which was refused")
            if other.result is None:
                other.result = reply.parts
            elif other.result != reply.parts:
                self._world.fail(f"{other} is part of two results: {other.result} and {reply.parts}")
        if reply.parts[request.rank] != request.data:
            self._world.fail(f"{call} brought {request.data!r} and finds {reply.parts[request.rank]!r}")

    def _barrier(self, call: Call, reply: m.Arrived) -> None:
        request = call.request
        called = self._begun[request.group, request.round]
        missing = sorted(set(range(request.size)) - called)
        if reply.size != request.size or missing or not call.is_barrier:
            self._world.fail(f"{call} is over with {reply}, and ranks {missing} have not called")

    def fail(self, call: Call, failure: Failed) -> None:
        self._end(call)
        self.failed += 1
        if failure.code not in CODES and not call.member.invariants.ranks.has_lost(call.member):
            self._world.fail(f"{call} fails with {failure}")
        call.refused = failure.attempts == 1
        if call.refused and call.result is not None:
            self._world.fail(f"{call} was refused ({failure}) and is part of a result: {call.result}")
        if not failure.attempts and self._was_undisturbed(call):
            self._world.fail(f"{call}: nothing came between it and the store, which did not answer: {failure}")

    def forget(self, member: Member) -> None:
        """Its process is over."""
        for call in [call for call in self._open if call.member is member]:
            del self._open[call]

    def _end(self, call: Call) -> None:
        del self._open[call]
        late_s = self._world.now - call.until - ANSWER_GRACE_S
        if late_s > SLACK_S and call.member.disturbed_until < call.until:
            self._world.fail(f"{call} ends {late_s:.3f} s after its deadline")

    def _was_undisturbed(self, call: Call) -> bool:
        member = call.member
        last = max(member.disturbed_until, member.host.disturbed_until, self._server.disturbed_until)
        return call.was_ready and last < call.began_at

    # --- at the store -----------------------------------------------------------------------------------------------

    def arrived(self, request: m.Gather) -> None:
        """The store has heard it. If it waits: the others that it may rely on being told of."""
        assert self._server.state is not None
        tables = self._server.state.tables
        name = (request.group, request.round)
        rendezvous = tables.rendezvous._open.get(name)
        if rendezvous is None:
            return
        known = self._expected.get(name)
        if known is None or known.rendezvous is not rendezvous:
            holders = {rank: tables.ranks.holder(request.group, rank) for rank in range(rendezvous.size)}
            sessions = {rank: holder.session for rank, holder in holders.items() if holder is not None}
            self._expected[name] = Expected(rendezvous, sessions)

    def refused(self, request: m.Gather, refusal: m.Refused) -> None:
        """The store says to who waits that a rank is gone: then its owner has lost it, whoever has it now."""
        found = _GONE_RANK.search(refusal.sentence)
        expected = self._expected.get((request.group, request.round))
        if found is not None and expected is not None:
            rank = int(found[1])
            if self._is_held(request.group, rank, expected.holders.get(rank)):
                self._world.fail(f"{refusal.sentence}, says the store, though it has not lost it")

    def _is_held(self, group: str, rank: int, session: bytes | None) -> bool:
        assert self._server.state is not None
        holder = self._server.state.tables.ranks.holder(group, rank)
        return holder is not None and holder.session == session

    def audit(self) -> None:
        state, now = self._server.state, self._world.now
        for call in self._open:
            if now > call.until + ANSWER_GRACE_S + SLACK_S and not call.member.is_stopped:
                self._world.fail(f"{call} waits {now - call.until:.3f} s beyond its deadline")
        if state is None:
            self._expected.clear()
            return
        waiting = state.tables.rendezvous._open
        for name, expected in list(self._expected.items()):
            rendezvous = expected.rendezvous
            if waiting.get(name) is not rendezvous:
                del self._expected[name]
                continue
            for rank, session in expected.holders.items():
                if rank not in rendezvous.arrivals and not self._is_held(name[0], rank, session):
                    self._world.fail(f"ranks {sorted(rendezvous.arrivals)} wait for rank {rank} of {name}: it is gone")
