"""The functions of the C interface: as `functions.txt` lists them, and as documents show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).resolve().parents[1] / "capi" / "functions.txt"
GENERATIONS = "123+"  # the later, the more it counts
_LINE = re.compile(r"([123+]+) +(\w+)\.(\w+) +(.+?)(smem_\w+)\((.*)\)")
_PROTOTYPE = re.compile(r"^ *([a-z_][\w ]*?[ *]+)(smem_\w+) *\(([^;{]*?)\) *(?:;|$|\n```)", re.MULTILINE)
_BLOCK = re.compile(r"^ *```c? *\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_MENTIONED = re.compile(r"`[^`]*`")
_NAME = re.compile(r"\b(smem_[a-z0-9_]+)((?:/_[a-z_]+)*)")


class Form(NamedTuple):
    """A function in one of its forms, and the check of a program that shows what it does."""

    generations: str
    program: str
    check: str
    result: str
    name: str
    parameters: str

    def arguments(self) -> list[str]:
        """Names of the parameters."""
        if self.parameters == "void":
            return []
        flat = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", self.parameters)  # pointers to functions
        return [re.sub(r"\[\]$", "", each).split()[-1].lstrip("*") for each in flat.split(",")]

    def types(self) -> tuple[str, ...]:
        """Of the result and of the parameters, without their names."""
        return (_type(self.result), *parameter_types(self.parameters))


class Shown(NamedTuple):
    """A function as a document shows it."""

    name: str
    types: tuple[str, ...]


def forms() -> list[Form]:
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            assert match is not None, f"{LIST.name}: {line}"
            found.append(Form(*(part.strip() for part in match.groups())))
    return found


def exported(listed: Iterable[Form]) -> list[Form]:
    """Each function as the library has it: in its last form. The others are the headers' own."""
    by_name: dict[str, Form] = {}
    for form in listed:
        known = by_name.get(form.name)
        if known is None or _age(known) < _age(form):
            by_name[form.name] = form
    return list(by_name.values())


def _age(form: Form) -> int:
    return GENERATIONS.index(form.generations[-1])


def parameter_types(parameters: str) -> tuple[str, ...]:
    if parameters.strip() in ("", "void"):
        return ()
    pieces = re.split(r",(?![^(]*\))", parameters)  # not those of a function that is a parameter
    return tuple(_parameter_type(piece) for piece in pieces)


def _parameter_type(text: str) -> str:
    function = re.fullmatch(r"\s*(.+?)\(\*\w+\)\((.*)\)\s*", text)
    if function:
        return f"{_type(function[1])}(*)({','.join(parameter_types(function[2]))})"
    declared = re.fullmatch(r"\s*(.*?)(\w+)(\[\])?\s*", text, re.DOTALL)
    if declared and re.search(r"\w", declared[1]):
        return _type(declared[1]) + ("*" if declared[3] else "")
    return _type(text)  # it has no name


def _type(text: str) -> str:
    """`const uint32_t` of a parameter is the same as `uint32_t` to those who call."""
    plain = re.sub(r"\s*\*\s*", "*", " ".join(text.split()))
    return plain.removeprefix("const ") if "*" not in plain else plain


def shown_in(document: str) -> Iterator[Shown]:
    """What is declared in the blocks of code of a Markdown document."""
    for block in _BLOCK.findall(document):
        for result, name, parameters in _PROTOTYPE.findall(block):
            # One of the documents says `int32_t smem_trans_t smem_trans_create(…)`: the last word is meant.
            yield Shown(name, (_type(re.sub(r"^int32_t (?=smem_)", "", result)), *parameter_types(parameters)))


def mentioned_in(document: str) -> set[str]:
    """Names in the code of its sentences; `smem_a_b/_c` stands for smem_a_b and smem_a_c."""
    found = set()
    for code in _MENTIONED.findall(_BLOCK.sub("", document)):
        for name, others in _NAME.findall(code):
            found.add(name)
            for other in others.split("/")[1:]:
                found.add(name.rsplit("_", other.count("_"))[0] + other)
    return found
