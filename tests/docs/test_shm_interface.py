"""The interface page has every name of Share Memory and of its kernels."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

from memfabric_hybrid import device, shm

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
HEADER = ROOT / "include" / "smem" / "device" / "smem_shm_aicore_base_api.h"


def test_names_of_share_memory() -> None:
    own = {name for name, _ in inspect.getmembers(shm.ShareMemory) if not name.startswith("_")}
    config = {name for name in vars(shm.ShmConfig) if not name.startswith("_")} - {"validate"}
    words = set(re.findall(r"\w+", PAGE))
    assert not sorted({*shm.__all__, *own, *config, *device.__all__} - words)


def test_values_of_the_enum() -> None:
    for name, member in shm.ShmDataOpType.__members__.items():
        assert re.search(rf"`{name}` {member.value}\b", PAGE), name


def prototypes() -> str:
    """As the page has them."""
    block = re.search(r"^```c\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1]


def test_the_page_has_the_signatures_of_the_header(tmp_path: Path) -> None:
    """Declared after the header's own definitions: the compiler compares them."""
    functions = set(re.findall(r"\b(smem_shm_\w+)\(", HEADER.read_text(encoding="utf-8")))
    assert len(functions) >= 12
    assert not sorted(name for name in functions if not re.search(rf"\b{name}\(", prototypes()))
    declarations = re.sub(r"^(?=\w)", "static ", prototypes(), flags=re.MULTILINE)
    program = tmp_path / "signatures.c"
    program.write_text(f"#include <{HEADER}>\n".replace("<", '"').replace(">", '"') + declarations)
    command = ["cc", "-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-function", str(program)]
    compiled = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert compiled.returncode == 0, compiled.stderr
