"""The documents tell the truth: their code runs, their tables are those of the code, their sentences exist."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from docs import runs
from docs.pages import ROOT, Program, blocks, programs
from memfabric_hybrid import bm, errors, settings

BLOCKS = blocks()
PROGRAMS = programs()
DEADLINE_S = 60


def test_every_block_says_what_it_is() -> None:
    assert not [f"{b.page}:{b.line}: python {b.kind!r}" for b in BLOCKS if b.kind not in ("", "script")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program, store_url: str, tmp_path: Path) -> None:
    runs.run_program(program, store_url, tmp_path)


def test_readme_has_a_quick_start_of_15_lines() -> None:
    scripts = [block for block in BLOCKS if block.page == "README.md"]
    assert len(scripts) == 1
    lines = [line for line in scripts[0].text.splitlines() if line.strip() and not re.match("import|from", line)]
    assert len(lines) <= 15, f"the quick start has {len(lines)} lines besides its imports"


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate-docs"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert checked.returncode == 0, checked.stderr


# ---- names ---------------------------------------------------------------------------------------------------------


def public_names() -> set[str]:
    own = {name for name, _ in inspect.getmembers(bm.BigMemory) if not name.startswith("_")}
    stream = {name for name, _ in inspect.getmembers(mf.Stream) if not name.startswith("_")}
    transfer = {name for name, _ in inspect.getmembers(mf.TransferEngine) if not name.startswith("_")}
    config = {name for name in vars(bm.BmConfig) if not name.startswith("_")}
    members = {
        member
        for enum in (bm.BmCopyType, bm.BmDataOpType, bm.BmMemType, bm.BmGroupEvent, mf.TransDataOpType)
        for member in enum.__members__
    }
    variables = {name for setting in settings.ALL for name in setting.names}
    codes = {str(code.value) for code in errors.Code}
    return {*mf.__all__, *bm.__all__, *own, *stream, *transfer, *config, *members, *variables, *codes} - {"errors"}


def test_interface_page_has_every_name() -> None:
    text = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
    words = set(re.findall(r"-?\w+", text))
    assert not sorted(public_names() - words)


def test_interface_page_has_the_values_of_the_enums() -> None:
    text = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
    for enum in (bm.BmCopyType, bm.BmDataOpType, bm.BmMemType, bm.BmGroupEvent):
        for name, member in enum.__members__.items():
            assert re.search(rf"`{name}` {member.value}\b", text), f"{enum.__name__}.{name} {member.value} is missing"


# ---- sentences -----------------------------------------------------------------------------------------------------


def source_text() -> str:
    """All string literals of the package, pieces of one literal joined."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "native").rglob("*.cpp"), *(ROOT / "native").rglob("*.h")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(files))
    return re.sub(r'"\s*f?"', "", text)


def quoted_sentences() -> list[str]:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quotations = re.findall(r"^```text\n(.*?)```$", page, re.MULTILINE | re.DOTALL)
    return [line for quotation in quotations for line in quotation.splitlines()]


def test_troubleshooting_has_enough_entries() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^## ", page, re.MULTILINE)) >= 12
    assert len(quoted_sentences()) >= 12


@pytest.mark.parametrize("sentence", quoted_sentences())
def test_quoted_sentence_exists(sentence: str) -> None:
    """What stands between the dots of a quotation (`…` is a value) is in the source, word for word."""
    text = source_text()
    parts = [part.strip(" '") for part in sentence.split("…")]
    missing = [part for part in parts if len(part) > 3 and part not in text]
    assert not missing, f"the package never says {missing}"
