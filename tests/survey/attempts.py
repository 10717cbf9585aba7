"""One call with one wrong argument, and what is expected of every failure."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import memfabric_hybrid as mf
from memfabric_hybrid import bm, errors, offload, shm
from survey.calls import Call

SOURCES = Path(inspect.getfile(mf)).parent
NATIVE = Path(__file__).resolve().parents[2] / "native"

# What a call may be expected to do: return this number, or raise this exception.
Expected = int | type[Exception]
RAISED = (TypeError, ValueError, RuntimeError, errors.FabricError)


def _inside() -> Iterator[str]:
    """Names that only the inside knows: classes of ours that no user has in his hands. Of two words at least; one is
    often a word of the language as well.
    """
    public = {name for module in (mf, bm, shm, offload, errors) for name in dir(module)}
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in public:
                yield node.name
    for file in NATIVE.rglob("*.h"):
        yield from re.findall(r"^(?:class|struct)(?: MF_API)? (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)


INSIDE = re.compile(
    r"(?<![\w'])_[a-z]\w*|nanobind|memfabric(_hybrid)?(::|\.)|std::|incompatible function arg|object at 0x|unexpected|"
    r"'(bm|shm)/|\b("
    + "|".join(sorted({name for name in _inside() if re.fullmatch(r"([A-Z][a-z0-9]+){2,}", name)}))
    + r")\b"
)


class Refusal(NamedTuple):
    """What the call did instead, and what it said."""

    by: object
    sentence: str

    def is_as(self, expected: Expected) -> bool:
        if isinstance(self.by, errors.FabricError) and isinstance(expected, int):
            return int(self.by.code) == expected
        return isinstance(self.by, expected) if isinstance(expected, type) else self.by == expected


class Accepted(AssertionError):
    """The call took what it should have refused."""


def attempt(call: Call, wrong: dict[str, Any]) -> Refusal:
    given = {name: right for name, (right, _) in call.arguments.items()} | wrong
    mf.get_and_clear_last_err_msg()
    try:
        result = call.function(**given)
    except RAISED as error:
        return Refusal(error, str(error))
    sentence = mf.get_and_clear_last_err_msg()
    if not sentence:
        raise Accepted(f"is accepted: {result!r}")
    return Refusal(result, sentence)


def complaint(call: Call, wrong: dict[str, Any], *words: str, expected: Expected | None = None) -> str:
    """Nothing if it is refused as expected, with a sentence that has these words and none of the inside's."""
    what = f"{call.name}({', '.join(f'{name}={value!r}' for name, value in wrong.items())})"
    try:
        refusal = attempt(call, wrong)
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    missing = [word for word in words if word not in refusal.sentence]
    if missing:
        return f"{what} does not say {missing}: {refusal.sentence}"
    if expected is not None and not refusal.is_as(expected):
        return f"{what}: {refusal.by!r} instead of {expected}: {refusal.sentence}"
    inside = INSIDE.search(refusal.sentence)
    return f"{what} speaks of the inside ({inside[0]}): {refusal.sentence}" if inside else ""
