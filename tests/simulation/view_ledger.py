"""Who sees whom: members that nothing has come between see exactly who is there, within the promised time.

A rank that stops taking part, or whose process ends, is seen no longer; one that takes part is seen by everybody who
follows its host. The time: a silent member is missed by the store after its heartbeat time-out, members come back to a
store that was away, rosters wait a heartbeat time-out for those that do not, and neighbours are asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memfabric_hybrid.address_space.pool import REANNOUNCE_PAUSE_S
from simulation.rank_ledger import REGISTERED_S

if TYPE_CHECKING:
    from simulation.member import Member
    from simulation.part import Part
    from simulation.server import Server

Ranks = dict[int, "Member"]


class ViewLedger:
    def __init__(self, server: Server, members: dict[int, Member]) -> None:
        self._server = server
        self._world = server.world
        self._members = members
        self._stopped_at: dict[tuple[str, int], float] = {}  # object and rank: when one last ceased to take part

    @property
    def promised_s(self) -> float:
        timeout_s = max((member.heartbeat_timeout_s for member in self._members.values()), default=0.0)
        return REGISTERED_S + 2 * timeout_s + 2 * REANNOUNCE_PAUSE_S

    def stops(self, member: Member) -> None:
        if member.part is not None:
            self._stopped_at[member.object_name, member.rank] = self._world.now

    def audit(self) -> None:
        if not self._server.is_serving:
            return
        patience_s, now = self.promised_s, self._world.now
        calm = [member for member in self._members.values() if self._is_calm(member, patience_s)]
        expected = _by_place(calm)
        there = {(member.object_name, member.rank) for member in self._members.values() if member.takes_part}
        for member in calm:
            part, name = _part(member), member.object_name
            seen = part.known.stamps()
            for rank in seen:
                if (name, rank) not in there and now - self._stopped_at.get((name, rank), 0.0) > patience_s:
                    self._world.fail(f"{member} (rank {member.rank}) sees rank {rank} of {name}, which is long gone")
            for rank, other in _followed(member, expected).items():
                if seen.get(rank) != _part(other).known.own_stamp:
                    self._world.fail(f"{member} (rank {member.rank}) does not see rank {rank} of {name}: {seen}")

    def _is_calm(self, member: Member, patience_s: float) -> bool:
        """It takes part, and nothing has come between it and the store for so long."""
        part, now = member.part, self._world.now
        if part is None or part.settled_at is None or member.is_leaving or not member.is_settled:
            return False
        disturbed = max(member.disturbed_until, member.host.disturbed_until, self._server.disturbed_until)
        return now - max(part.settled_at, disturbed) > patience_s

    def check_converged(self) -> None:
        """Everybody sees exactly who is there: all that live have joined."""
        there = _by_place(list(self._members.values()))
        for member in self._members.values():
            truth = {rank: _part(one).known.own_stamp for rank, one in _followed(member, there).items()}
            seen = _part(member).known.stamps()
            if seen != truth:
                self._world.fail(f"{member} (rank {member.rank}) sees {seen}, and there are {truth}")


def _by_place(members: list[Member]) -> dict[str, dict[str, Ranks]]:
    """By object and host."""
    found: dict[str, dict[str, Ranks]] = {}
    for member in members:
        found.setdefault(member.object_name, {}).setdefault(member.host.name, {})[member.rank] = member
    return found


def _followed(member: Member, there: dict[str, dict[str, Ranks]]) -> Ranks:
    """The members of its object on the hosts that it follows."""
    follows = _part(member).follows
    hosts = there.get(member.object_name, {})
    return {rank: one for host, ranks in hosts.items() if follows(host) for rank, one in ranks.items()}


def _part(member: Member) -> Part:
    assert member.part is not None
    return member.part
