"""The machine's limits as callables: bare C loops on the same buffers, in the same run (benchmarks/native)."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "benchmarks"
KINDS = {"memcpy": 0, "non-temporal": 1, "memcpy, 2 threads": 2}


def build(*settings: str) -> Path:
    """The shared library with the limits; built on first use."""
    configure = ["cmake", "-S", ROOT, "-B", BUILD, "-DMF_BUILD_PYTHON=OFF", "-DMF_BUILD_BENCHMARKS=ON", *settings]
    for command in (configure, ["cmake", "--build", BUILD, "-j2"]):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"building the limits failed:\n{done.stdout}{done.stderr}")
    return next(BUILD.rglob("libmf_copy_limits.so"))


class Limits:
    """`run(kind, …)` copies all pieces once and returns the microseconds, measured inside C."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(build()))
        self._library.mf_limit.restype = ctypes.c_double
        self._library.mf_limit.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_uint32]
        self._library.mf_process_limit.restype = ctypes.c_double
        self._library.mf_process_limit.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_uint32]

    def run(self, kind: str, targets: int, sources: int, sizes: int, count: int) -> float:
        """Addresses of three uint64 arrays."""
        return float(self._library.mf_limit(KINDS[kind], targets, sources, sizes, count))

    def run_into(self, pid: int, targets: int, sources: int, sizes: int, count: int) -> float:
        """The same into another process, with bare process_vm_writev calls."""
        took_us = float(self._library.mf_process_limit(pid, targets, sources, sizes, count))
        if took_us < 0:
            raise SystemExit(f"the kernel does not let this process into process {pid}")
        return took_us

    def spin(self, kind: str, on: bool) -> None:
        """The second thread spins while its kind is measured, and only then."""
        if kind == "memcpy, 2 threads":
            (self._library.mf_limit_start_spinning if on else self._library.mf_limit_stop_spinning)()
