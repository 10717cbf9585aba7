"""What is answered where descriptors were sent and the receiver had no number left for them."""

from __future__ import annotations

import resource

from memfabric_hybrid.address_space.messages import Answer, Refuse
from memfabric_hybrid.errors import Code


def refusal(who: str) -> Refuse:
    """`who` has none left; begins the sentence."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    sentence = f"{who} has no descriptor left for the memory that was shown; raise its limit of open files (ulimit -n"
    return Refuse(int(Code.NO_RESOURCES), f"{sentence}, now {limit})")


def explains(answer: Answer) -> bool:
    """Does whoever answered so lack descriptors?"""
    return isinstance(answer, Refuse) and answer.code == Code.NO_RESOURCES
