"""Where the programs live that benchmarks compare with: an environment of their own, made by scripts/peers."""

from __future__ import annotations

import subprocess
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[2] / "build" / "peers" / "bin" / "python"
REMEDY = "`--peers` of scripts/bench installs what is missing"


def has_package(name: str) -> bool:
    question = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return PYTHON.exists() and subprocess.run([str(PYTHON), "-c", question], check=False).returncode == 0
