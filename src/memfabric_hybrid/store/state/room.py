"""Memory of one sort of things, with a limit of what members hold of it together and one of what all others hold. Pure.

So strangers, however many, fill their own part and never that of members.
"""

from __future__ import annotations

from memfabric_hybrid.errors import NoResources


class Room:
    """`what` holds the memory, as a sentence names it."""

    def __init__(self, what: str, members_bytes: int, others_bytes: int) -> None:
        self._what = what
        self._limits = {True: members_bytes, False: others_bytes}
        self.held_bytes = {True: 0, False: 0}  # by whether members hold it

    def check(self, size_bytes: int, *, is_members: bool) -> None:
        """NoResources: that much more is too much."""
        total_bytes = self.held_bytes[is_members] + size_bytes
        if total_bytes > self._limits[is_members]:
            whose = "members" if is_members else "those who hold no rank"
            raise NoResources(
                f"{self._what} of {whose} would hold {total_bytes} bytes of the store together, allowed are "
                f"{self._limits[is_members]}; end some"
            )

    def take(self, size_bytes: int, *, is_members: bool) -> None:
        self.held_bytes[is_members] += size_bytes

    def give_back(self, size_bytes: int, *, is_members: bool) -> None:
        self.held_bytes[is_members] -= size_bytes
