"""Programs of the documents and examples in all the ways in which users run programs: without assertions (-O), with
everything that Python can warn of (-X dev -W error), and with every way of starting processes.

A part of it here, all of it with `scripts/soak ways`.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from docs import runs
from docs.pages import ROOT, Program, programs
from docs.runs import Way
from memfabric_hybrid import bm, offload, shm

EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
PROGRAMS = programs()
EVERYTHING = bool(os.environ.get("MF_ALL_WAYS"))
WAYS = runs.ALL if EVERYTHING else runs.TOGETHER
PAGES = PROGRAMS if EVERYTHING else [program for program in PROGRAMS if program.page == "README.md"]
# What an assertion may call: -O removes it, and nothing else must go with it.
LOOKING = {
    "all", "float", "equal", "rint", "astype", "string_at", "get_last_err_msg", "peer_rank_ptr", "get_rank_id_by_gva",
    "gva_to_va", "local_mem_size",
}  # fmt: skip
RETURN_CODES = {"initialize", "join", "barrier", "free", "register", "copy_data", "transfer_sync_write"}


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("program", PAGES, ids=lambda program: program.name)
def test_program(program: Program, way: Way, store_url: str, tmp_path: Path) -> None:
    runs.run_program(program, store_url, tmp_path, way)


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("example", EXAMPLES if EVERYTHING else EXAMPLES[:1], ids=lambda example: example.name)
def test_example(example: Path, way: Way) -> None:
    runs.run(way, str(example))


@pytest.mark.parametrize("way", runs.TOGETHER, ids=lambda way: way.name)
def test_ways_are_as_they_say(way: Way, tmp_path: Path) -> None:
    """Whatever the program asks for; in the processes that it starts, too."""
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, sys\n"
        "def tell():\n"
        "    assert False, 'assertions are left out'\n"
        "    print(multiprocessing.get_context('spawn').get_start_method(), sys.flags.dev_mode, sys.flags.optimize)\n"
        "if __name__ == '__main__':\n"
        "    tell()\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    print(context.Process.__name__, flush=True)\n"
        "    child = context.Process(target=tell)\n"
        "    child.start()\n"
        "    child.join()\n"
    )
    kind = {"spawn": "SpawnProcess", "fork": "ForkProcess", "forkserver": "ForkServerProcess"}[str(way.start_method)]
    told = f"{way.start_method} True 1"
    assert sorted(runs.run(way, str(program)).split("\n")) == sorted([told, kind, told, ""])


def called_in_assertions(text: str) -> set[str]:
    tests = [node.test for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
    functions = [node.func for test in tests for node in ast.walk(test) if isinstance(node, ast.Call)]
    return {function.attr if isinstance(function, ast.Attribute) else ast.unparse(function) for function in functions}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_assertions_of_documents_only_look(program: Program) -> None:
    assert called_in_assertions(program.text) <= LOOKING


def test_assertions_of_examples_only_look() -> None:
    for example in EXAMPLES:
        assert called_in_assertions(example.read_text(encoding="utf-8")) <= LOOKING, example.name


def programs_in(subject: object) -> list[str]:
    """The indented pieces of what `help()` shows that are Python."""
    found, piece = [], list[str]()
    for line in [*(inspect.getdoc(subject) or "").splitlines(), "end"]:
        if line.startswith("    ") or not line:
            piece.append(line)
            continue
        text, piece = textwrap.dedent("\n".join(piece)), []
        with suppress(SyntaxError):
            found.append(ast.unparse(ast.parse(text)))
    return [text for text in found if "(" in text]


@pytest.mark.parametrize("subject", [mf, bm, shm, offload, mf.TransferEngine], ids=lambda subject: subject.__name__)
def test_help_only_looks_in_assertions_and_drops_no_code(subject: object) -> None:
    texts = programs_in(subject)
    assert texts or subject is mf
    for text in texts:
        assert called_in_assertions(text) <= LOOKING
        for statement in ast.walk(ast.parse(text)):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                called = ast.unparse(statement.value.func).rpartition(".")[2]
                assert called not in RETURN_CODES, text
