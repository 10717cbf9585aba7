"""What is answered where descriptors cannot be sent, or the receiver has no number left for them."""

from __future__ import annotations

import resource

from memfabric_hybrid.address_space.messages import Answer, Refuse
from memfabric_hybrid.errors import Code


def refusal(who: str) -> Refuse:
    """`who` has none left; begins the sentence."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    sentence = f"{who} has no descriptor left for the memory that was shown; raise its limit of open files (ulimit -n"
    return Refuse(int(Code.NO_RESOURCES), f"{sentence}, now {limit})")


def crowded() -> Refuse:
    """The kernel has too many of our user's on their way."""
    return Refuse(
        int(Code.NO_RESOURCES),
        "the rank that was asked cannot show its memory: too many descriptors of this user are on their way between "
        "processes; raise the limit of open files (ulimit -n)",
    )


def explains(answer: Answer) -> bool:
    """Does whoever answered so lack descriptors?"""
    return isinstance(answer, Refuse) and answer.code == Code.NO_RESOURCES
