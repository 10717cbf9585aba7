"""Watches a C program call the interface: which function, in which form, from where, and what it answered. One function
can be made to lie, which the program must notice (`programs/observer.h`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import memfabric_hybrid as mf
from support.c_interface import Form, exported, forms
from support.c_programs import DEADLINE_S, PROGRAMS, Running, finish_together

# By the type of its result; 0 is a rank.
_KINDS = {"void": "NOTHING", "int32_t": "CODE", "uint32_t": "RANK", "uint64_t": "NUMBER", "const char *": "TEXT"}
_NUMBERS = {"smem_get_last_err_code", "smem_shm_query_support_data_operation"}


class Call(NamedTuple):
    """Made by `check`, a function of the program, with that many arguments."""

    function: str
    succeeded: bool
    check: str
    argument_count: int


class Observer:
    """The library, compiled in `folder`; notes of runs are there as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forms = {form.name: form for form in exported(forms())}
        source = folder / "observer.c"
        source.write_text('#include "observer.h"\n' + "".join(map(_definition, self._forms.values())))
        self._library = folder / "observer.so"
        done = subprocess.run(
            ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-frame-address", "-g", "-shared", "-fPIC",
             f"-I{mf.get_include_path()}", f"-I{PROGRAMS}", str(source), "-o", str(self._library)],
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def watch(self, program: Path, *runs: Sequence[object], **environment: str) -> list[Call]:
        """Runs it, a process with each of the arguments; all must succeed."""
        notes = [self._folder / f"{program.stem}.{number}.notes" for number in range(len(runs))]
        finish_together([
            self._start(program, run, file, **environment) for run, file in zip(runs, notes, strict=True)
        ])  # fmt: skip
        return [call for file in notes for call in _calls(program, file, self._forms)]

    def failure_with(self, liar: str, program: Path, *runs: Sequence[object]) -> str:
        """What the first process that complains says; "" if all are content."""
        started = []
        for number, run in enumerate(runs):
            truths = self._folder / f"{program.stem}.{number}.truths"
            truths.write_text(self._truths(program, number, liar))
            notes = self._folder / f"{program.stem}.{number}.{liar}.notes"
            started.append(self._start(program, run, notes, OBSERVER_LIAR=liar, OBSERVER_TRUTHS=str(truths)))
        try:
            finish_together(started)
        except AssertionError as complaint:
            return str(complaint)
        return ""

    def _truths(self, program: Path, number: int, function: str) -> str:
        """For each call of the function by that process, in the run that was watched."""
        lines = (self._folder / f"{program.stem}.{number}.notes").read_text().splitlines()
        return "".join(line.split()[1] for line in lines if line.split()[0] == function)

    def _start(self, program: Path, run: Sequence[object], notes: Path, **environment: str) -> Running:
        notes.unlink(missing_ok=True)
        return Running(program, *run, LD_PRELOAD=str(self._library), OBSERVER_NOTES=str(notes), **environment)


def _definition(form: Form) -> str:
    kind = "NUMBER" if form.name in _NUMBERS else _KINDS.get(form.result, "ADDRESS")
    what = f"{form.name}, ({form.parameters}), ({', '.join(form.arguments())})"
    return f"OBSERVE_{kind}({'' if kind in ('CODE', 'NOTHING') else form.result + ', '}{what})\n"


def _calls(program: Path, notes: Path, known: dict[str, Form]) -> list[Call]:
    """A form that is the header's own is a function of the program, which the check calls (in C++)."""
    lines = [line.split() for line in notes.read_text().splitlines()]
    places = _functions_at(program, {place for line in lines for place in line[2:]})
    calls = []
    for function, good, caller, before in lines:
        name, parameter_count = places[caller]
        if name == function:
            calls.append(Call(function, good == "1", places[before][0], parameter_count))
        else:
            calls.append(Call(function, good == "1", name, len(known[function].arguments())))
    return calls


def _functions_at(program: Path, places: set[str]) -> dict[str, tuple[str, int]]:
    """By address after a call: the name of the function that has it, and how many parameters that one has."""
    ordered = sorted(places)
    asked = [hex(max(int(place, 16) - 1, 0)) for place in ordered]
    said = subprocess.run(
        ["addr2line", "-C", "-f", "-e", str(program), *asked], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = {}
    for place, text in zip(ordered, said[::2], strict=True):
        name, _, parameters = text.partition("(")
        found[place] = name, parameters.count(",") + 1 if parameters.strip(") ") else 0
    return found
