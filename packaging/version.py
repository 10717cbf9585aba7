"""The version of a package that is being built: VERSION of the environment, or the source's own. Run, prints it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "memfabric_hybrid" / "__init__.py"


def version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f'{SOURCE} has no line __version__ = "…"')
    return os.environ.get("VERSION") or found[1]


def dynamic_metadata(field: str, settings: dict[str, Any]) -> str:
    """For scikit-build-core."""
    if field != "version" or settings:
        raise ValueError(f"this gives the version, not {field} with {settings}")
    return version()


if __name__ == "__main__":
    print(version())
