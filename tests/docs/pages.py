"""The programs in the documents.

Code in a page is one of two kinds. "python script" is a program of its own. Plain "python" blocks are the parts of one
program per page, run from top to bottom.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str


class Program(NamedTuple):
    page: str
    name: str
    text: str


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python *(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(str(page.relative_to(ROOT)), line, match[1].strip(), match[2]))
    return found


def programs() -> list[Program]:
    """Scripts are named after their line, the program of a page after the page."""
    found = blocks()
    scripts = [
        Program(block.page, f"{block.page}:{block.line}", block.text) for block in found if block.kind == "script"
    ]
    pages = sorted({block.page for block in found if block.kind == ""})
    parts = {
        page: [f"# {b.page}:{b.line}\n{b.text}" for b in found if b.page == page and b.kind == ""] for page in pages
    }
    return [*scripts, *(Program(page, page, "\n".join(parts[page])) for page in pages)]
