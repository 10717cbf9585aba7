"""The C library and its core with AddressSanitizer and UndefinedBehaviorSanitizer: those of the native tests' address
way, in an environment of their own. Python's own module is the ordinary one.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from support.c_programs import ROOT
from support.environments import install_package, new_environment

BUILT = ROOT / "build" / "native" / "address" / "native"
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The interpreter is never ended, and has its memory in arenas that are no roots for the search for leaks.
ASAN_OPTIONS = "detect_leaks=0:abort_on_error=0:detect_stack_use_after_return=1"
BUILD_TIMEOUT_S = 900.0
MARKS = (pytest.mark.instrumented, pytest.mark.timeout(BUILD_TIMEOUT_S))


def install(folder: Path) -> dict[str, str]:
    """What programs compiled with FLAGS have in their environment variables to be run with that library."""
    done = subprocess.run(
        ["scripts/native-tests", "address"], cwd=ROOT, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S,
        env={**os.environ, "BUILD_ONLY": "1", "TARGETS": "mf_smem mf_smem_soname"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    libraries = install_package(new_environment(folder / "venv"), BUILT)
    core = next(libraries.glob("libmemfabric_core-*.so"))
    assert core.name in {each.name for each in Path(mf.get_lib_path()).iterdir()}, "the module would not find it"
    return {"LD_LIBRARY_PATH": str(libraries), "ASAN_OPTIONS": ASAN_OPTIONS}
