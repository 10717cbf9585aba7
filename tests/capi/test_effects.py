"""Each function does something, and somebody checks what: the check that `functions.txt` names calls it, in that form
and with success, and notices when it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import c_calls, campaigns
from support.c_interface import exported, forms
from support.c_observer import Call, Observer

Compile = Callable[..., Path]
ATTEMPTS = 3
pytestmark = pytest.mark.plain_store("one of the programs turns TLS on itself")


def watched(observer: Observer, compiled: Compile, folder: Path, name: str) -> list[Call]:
    program = c_calls.compiled_program(compiled, name, language="c++17")
    with c_calls.prepared(name, folder) as runs:
        return observer.watch(program, *runs)


@pytest.mark.parametrize("name", c_calls.NAMES)
def test_checks_call_what_they_show(compiled: Compile, observer: Observer, tmp_path: Path, name: str) -> None:
    calls = set(watched(observer, compiled, tmp_path, name))
    shown = [form for form in forms() if form.program == name]
    assert shown
    missing = [form for form in shown if Call(form.name, True, form.check, len(form.arguments())) not in calls]
    assert not missing, f"not called there, in that form and with success: {missing}"


def test_every_function_has_a_program_that_runs() -> None:
    assert {form.program for form in forms()} == set(c_calls.NAMES)


def is_noticed(observer: Observer, liar: str, program: Path, name: str, folder: Path) -> bool:
    """By a check of the program, and not by a crash."""
    with c_calls.prepared(name, folder) as runs:
        complaint = observer.failure_with(liar, program, *runs)
    assert not complaint or f"{name}.c:" in complaint, complaint
    return complaint != ""


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_lies_are_noticed(compiled: Compile, observer: Observer, tmp_path: Path) -> None:
    """A function that says that it did something, and did nothing, or gives another value, makes its program fail."""
    functions = exported(forms())
    count = min(campaigns.length("MF_C_LIES", 3), len(functions))
    chosen = campaigns.generator("C lies").sample(functions, count)
    unnoticed = []
    for name in sorted({form.program for form in chosen}):
        watched(observer, compiled, tmp_path, name)
        program = c_calls.compiled_program(compiled, name, language="c++17")
        for function in (form.name for form in chosen if form.program == name):
            # What waits for others may have nothing to wait for, now and then.
            if not any(is_noticed(observer, function, program, name, tmp_path) for _ in range(ATTEMPTS)):
                unnoticed.append(function)
    assert not unnoticed
