"""Who believes to own which rank, and when two may.

What is promised (docs/store.md, decision 0002):

- On one host nobody is given a rank that a living process of that host has, stopped or not: its rank socket is bound.
- A store gives a rank to somebody else only after it has ended the session of who had it: because its event channel was
  closed, or silent for its heartbeat time-out.
- A store that was started anew gives nobody a rank that a living member of the earlier one holds, before that member
  has had its heartbeat time-out to come back; after RETURN_S already, if no member at all has come back by then,
  because all of them were stopped or cut off. Whoever runs and reaches the store has come back within RETURN_S.
- A member whose rank was given away is told so as soon as it reaches the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memfabric_hybrid.store.state.recovery import LONGEST_S, RETURN_S

if TYPE_CHECKING:
    from simulation.member import Member
    from simulation.server import Server

# After a disturbance is over: the attempt to connect that is under way, the longest pause, the next attempt and the
# hand-over, over a network as slow as those of the plans.
REGISTERED_S = 3.0
SLACK_S = 1e-6  # of sums of floating point numbers

Rank = tuple[str, int]  # group and rank


class RankLedger:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._world = server.world
        self._believers: dict[Rank, dict[Member, None]] = {}
        self._of: dict[Member, dict[Rank, None]] = {}
        self._lost_in: dict[Member, int] = {}  # the life of the store in which its session has ended
        self.grants = self.evictions = 0

    def believe(self, group: str, rank: int, member: Member) -> None:
        """The member was told that the rank is its own."""
        others = self._believers.setdefault((group, rank), {})
        for other in others:
            if other.host is member.host and group == "bm/ranks":
                self._world.fail(f"rank {rank} of {group} belongs to {other} and {member} of the same host")
        others[member] = None
        self._of.setdefault(member, {})[group, rank] = None

    def disown(self, member: Member) -> None:
        """It has left, was told that it lost its rank, or is dead."""
        for rank in self._of.pop(member, ()):
            del self._believers[rank][member]
            if not self._believers[rank]:
                del self._believers[rank]
        self._lost_in.pop(member, None)

    def lost(self, member: Member) -> None:
        """The store has ended its session."""
        if member.is_alive:
            self._lost_in[member] = self._server.incarnation

    def has_lost(self, member: Member) -> bool:
        """Another one has its rank now, whether it knows or not."""
        if member.is_evicted or self._server.state is None:
            return True
        holder = self._server.state.tables.ranks.holder("bm/ranks", member.rank)
        return holder is not None and holder.session != member.client.session

    def granted(self, group: str, rank: int, member: Member) -> None:
        """The store gives the rank to that member."""
        self.grants += 1
        for other in self._believers.get((group, rank), ()):
            if other is not member and (flaw := self._flaw(other)):
                self._world.fail(f"rank {rank} of {group} is given to {member}, though {other} has it {flaw}")

    def _flaw(self, other: Member) -> str | None:
        """Why the living owner must not lose its rank now."""
        server = self._server
        if self._lost_in.get(other) == server.incarnation:
            return None
        age_s = self._world.now - server.started_at
        if self.clean_s(other) > RETURN_S:
            return f"and has been in touch with the store for {self.clean_s(other):.3f} s"
        patience_s = min(other.heartbeat_timeout_s, LONGEST_S) if server.has_heard_returning else RETURN_S
        if age_s < patience_s - SLACK_S:
            return f"and the store has waited only {age_s:.3f} s of {patience_s:g} s for those of its earlier life"
        return None

    def clean_s(self, member: Member) -> float:
        """How long nothing has come between that member and the store."""
        return self._world.now - max(member.disturbed_until, member.host.disturbed_until, self._server.disturbed_until)

    def audit(self) -> None:
        """Whoever runs and reaches the store is registered there, or knows that it is not."""
        state = self._server.state
        if state is None:
            return
        for (group, rank), believers in self._believers.items():
            holder = state.tables.ranks.holder(group, rank)
            for member in believers:
                if (holder is None or holder.session != member.client.session) and not member.is_leaving:
                    clean_s = self.clean_s(member)
                    if clean_s > REGISTERED_S:
                        who = "nobody" if holder is None else f"process {int.from_bytes(holder.session, 'big')}"
                        self._world.fail(
                            f"{member} takes itself for rank {rank} of {group}, which is {who}'s, and nothing has come "
                            f"between it and the store for {clean_s:.1f} s"
                        )
