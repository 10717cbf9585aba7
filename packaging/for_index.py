"""Prepares a copy of the sources for a package index: README's links and the metadata lead to the project's home.

    python packaging/for_index.py <folder with the copy> <version> [https://where/the/project/is]

Without a home, links to files become plain words: a link that leads nowhere is worse.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#]*)(#[^)]*)?\)")
PAGES = {"Documentation": "docs", "Changelog": "CHANGELOG.md"}


def readme(text: str, home: str, version: str) -> str:
    def absolute(link: re.Match[str]) -> str:
        words, file, anchor = link.groups()
        return f"[{words}]({_address(home, version, file)}{anchor or ''})" if home else words

    return LINK.sub(absolute, text)


def urls(home: str, version: str) -> str:
    """The table of pyproject.toml."""
    if not home:
        return ""
    rows = {"Homepage": home} | {name: _address(home, version, file) for name, file in PAGES.items()}
    return "\n[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in rows.items())


def _address(home: str, version: str, file: str) -> str:
    return f"{home}/blob/v{version}/{file}"


def main(folder: Path, version: str, home: str = "") -> None:
    page, project = folder / "README.md", folder / "pyproject.toml"
    page.write_text(readme(page.read_text(encoding="utf-8"), home.rstrip("/"), version), encoding="utf-8")
    with project.open("a", encoding="utf-8") as file:
        file.write(urls(home.rstrip("/"), version))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
