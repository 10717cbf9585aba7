"""One call with one wrong argument, and what is expected of every failure."""

from __future__ import annotations

import re
from typing import Any

import memfabric_hybrid as mf
from survey.calls import Call

# Words that only the inside knows.
INSIDE = re.compile(
    r"\b_\w+|nanobind|memfabric::|std::|incompatible function arg|object at 0x|unexpected|"
    r"\b(Space|TransferCore|HostGroup)\b"
)


class Accepted(AssertionError):
    """The call took what it should have refused."""


def attempt(call: Call, wrong: dict[str, Any]) -> str:
    """What the call says about these arguments."""
    given = {name: right for name, (right, _) in call.arguments.items()} | wrong
    mf.get_and_clear_last_err_msg()
    try:
        result = call.function(**given)
    except (TypeError, ValueError, RuntimeError, mf.errors.FabricError) as error:
        return str(error)
    sentence = mf.get_and_clear_last_err_msg()
    if not sentence:
        raise Accepted(f"is accepted: {result!r}")
    return sentence


def complaint(call: Call, wrong: dict[str, Any], *words: str) -> str:
    """Nothing if it is refused with a sentence that has these words and none of the inside's."""
    what = f"{call.name}({', '.join(f'{name}={value!r}' for name, value in wrong.items())})"
    try:
        sentence = attempt(call, wrong)
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    missing = [word for word in words if word not in sentence]
    if missing:
        return f"{what} does not say {missing}: {sentence}"
    return f"{what} speaks of the inside: {sentence}" if INSIDE.search(sentence) else ""
