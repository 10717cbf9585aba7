"""Each function of the interface, in each form that a generation of documents has: declared with that signature,
exported, exercised by a program of these tests that checks its effect.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from support import c_programs

LIST = Path(__file__).parent / "functions.txt"
LINE = re.compile(r"([123+]+) +(.+?)(smem_\w+)\((.*)\)")
HEADERS = "".join(f"#include <smem/host/{name}.h>\n" for name in ("smem", "smem_bm", "smem_shm", "smem_trans"))
CALL_PROGRAMS = ("process_calls.c", "bm_calls.c", "shm_calls.c", "trans_calls.c")


class Form(NamedTuple):
    generations: str
    result: str
    name: str
    parameters: str

    def arguments(self) -> list[str]:
        """Names of the parameters."""
        if self.parameters == "void":
            return []
        flat = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", self.parameters)  # pointers to functions
        return [re.sub(r"\[\]$", "", each).split()[-1].lstrip("*") for each in flat.split(",")]


def forms() -> list[Form]:
    lines = (line for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    found = [Form(*(LINE.fullmatch(line) or pytest.fail(line)).groups()) for line in lines]
    return [form._replace(result=form.result.strip()) for form in found]


def test_the_list_has_all_generations() -> None:
    counts = {generation: sum(generation in form.generations for form in forms()) for generation in "123+"}
    assert counts == {"1": 31, "2": 53, "3": 54, "+": 30}


@pytest.mark.parametrize("language", c_programs.LANGUAGES)
def test_all_are_declared(language: str, tmp_path: Path) -> None:
    """A call with values of exactly these types compiles without a warning, and gives a value of that type."""
    source = tmp_path / "calls.c"
    text = HEADERS
    for number, form in enumerate(forms()):
        call = f"{form.name}({', '.join(form.arguments())})"
        head = f"{form.result} call_{number}({form.parameters})"
        text += f"{head};\n{head} {{ {'' if form.result == 'void' else 'return '}{call}; }}\n"
    source.write_text(text + "int main(void) { return 0; }\n")
    c_programs.compile_program(source, tmp_path, language, flags=("-Wconversion",))


def test_all_are_exported_and_nothing_else() -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(c_programs.library())], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    assert exported == {form.name for form in forms()}


def test_all_are_exercised() -> None:
    """By the programs that `test_calls.py` runs, which check what each call does."""
    text = "".join((c_programs.PROGRAMS / name).read_text() for name in CALL_PROGRAMS)
    text += "".join(path.read_text() for path in c_programs.EXAMPLES.glob("*.c"))
    assert not {form.name for form in forms()} - set(re.findall(r"\b(smem_\w+)\(", text))


def test_the_library_has_a_versioned_name() -> None:
    shown = subprocess.run(["readelf", "-d", str(c_programs.library())], capture_output=True, text=True, check=True)
    assert "Library soname: [libmf_smem.so.1]" in shown.stdout
    assert "libpython" not in shown.stdout
