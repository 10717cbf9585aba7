"""The documents tell the truth: their code runs, their tables are those of the code, their sentences exist.

Code in a page is one of two kinds. "python script" is a program of its own. Plain "python" blocks are the parts of one
program per page, run from top to bottom; pages of `PEERS` have that many other ranks in the cluster meanwhile.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, errors, settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTED_URL = "tcp://127.0.0.1:9000"
DEADLINE_S = 60
QUIET = {**os.environ, "MF_LOG_LEVEL": "3"}  # the program of the page ends before its peers, and they say so
PEERS = {"docs/big_memory.md": 2}
PEER = """
import sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm
config = bm.BmConfig()
config.auto_ranking, config.rank_id, config.start_store = False, int(sys.argv[2]), False
assert bm.initialize(sys.argv[1], 4, 0, config) == 0, mf.get_last_err_msg()
pool = bm.create2(0, 32 << 20, 64 << 20, 2 << 20, 2 << 20)
assert pool.join() == 0, mf.get_last_err_msg()
sys.stdin.read()
pool.destroy()
bm.uninitialize()
"""


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python *(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(str(page.relative_to(ROOT)), line, match[1].strip(), match[2]))
    return found


BLOCKS = blocks()
SCRIPTS = [block for block in BLOCKS if block.kind == "script"]
PROGRAM_PAGES = sorted({block.page for block in BLOCKS if block.kind == ""})


@contextmanager
def peers(count: int, url: str) -> Iterator[None]:
    """Ranks 1 to `count`; they wait for the store, which the page's program starts as rank 0."""
    with ExitStack() as stack:
        processes = []
        for rank in range(1, count + 1):
            command = [sys.executable, "-c", PEER, url, str(rank)]
            processes.append(stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, env=QUIET)))
        try:
            yield
        finally:
            for process in processes:
                process.kill()


def run_program(file: Path, text: str, url: str) -> None:
    file.write_text(text.replace(DOCUMENTED_URL, url), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S
    )
    assert finished.returncode == 0, f"exit status {finished.returncode}:\n{finished.stdout}\n--- program:\n{text}"
    assert "Traceback" not in finished.stdout, finished.stdout


def test_every_block_says_what_it_is() -> None:
    assert not [f"{b.page}:{b.line}: python {b.kind!r}" for b in BLOCKS if b.kind not in ("", "script")]


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: f"{block.page}:{block.line}")
def test_script(block: Block, store_url: str, tmp_path: Path) -> None:
    run_program(tmp_path / "script.py", block.text, store_url)


@pytest.mark.parametrize("page", PROGRAM_PAGES)
def test_program_of_page(page: str, store_url: str, tmp_path: Path) -> None:
    parts = [f"# {page}:{b.line}\n{b.text}" for b in BLOCKS if b.page == page and b.kind == ""]
    with peers(PEERS.get(page, 0), store_url):
        run_program(tmp_path / "program.py", "\n".join(parts), store_url)


def test_readme_has_a_quick_start_of_15_lines() -> None:
    scripts = [block for block in SCRIPTS if block.page == "README.md"]
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
    config = {name for name in vars(bm.BmConfig) if not name.startswith("_")} - {"validate"}
    members = {
        member
        for enum in (bm.BmCopyType, bm.BmDataOpType, bm.BmMemType, bm.BmGroupEvent, mf.TransDataOpType)
        for member in enum.__members__
    }
    variables = {name for setting in settings.ALL for name in setting.names}
    codes = {str(code.value) for code in errors.Code}
    return {*mf.__all__, *bm.__all__, *own, *stream, *transfer, *config, *members, *variables, *codes} - {
        "errors",
        "abandon_after_fork",
    }


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
