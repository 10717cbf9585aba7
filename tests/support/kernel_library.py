"""`kernels.cpp` as a shared library, compiled against the header alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path) -> str:
    """Its path."""
    target = folder / "kernels.so"
    source = ROOT / "tests" / "support" / "kernels.cpp"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT / 'include'}"]
    subprocess.run(["c++", *flags, str(source), "-o", str(target)], check=True)
    return str(target)
