"""Starts the ranks of an example of Share Memory: real processes, each with its rank and the heap they share."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from members import Barrier, spawn
from members import run as run_members

import memfabric_hybrid as mf
from memfabric_hybrid import shm

__all__ = ["compiled", "run"]
COMPILE_S = 120.0  # Numba compiles in every process


def _rank(
    store_url: str, together: Barrier, number: object, body: Callable[[shm.ShareMemory], None], size: int
) -> None:
    with number.get_lock():  # type: ignore[attr-defined]
        rank = number.value  # type: ignore[attr-defined]
        number.value += 1  # type: ignore[attr-defined]
    mf.check(shm.initialize(store_url, together.parties, rank, 0, shm.ShmConfig()))
    heap = shm.create(0, together.parties, rank, size)
    body(heap)
    mf.check(heap.barrier())  # nobody needs the memory any more
    mf.check(heap.destroy())
    shm.uninitialize()


def run(body: Callable[[shm.ShareMemory], None], ranks: int, size: int = 64 << 20) -> int:
    """Calls `body(heap)` in as many processes as ranks; 0 if all of them ended well."""
    return run_members(_rank, ranks, spawn.Value("i", 0), body, size, deadline_s=COMPILE_S)


@contextmanager
def compiled(source: str) -> Iterator[ctypes.CDLL]:
    """The kernels of a C++ file beside this one, compiled against the header alone."""
    file = Path(__file__).with_name(source)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / f"{file.stem}.so"
        flags = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", f"-I{mf.get_include_path()}"]
        subprocess.run(["c++", *flags, str(file), "-o", str(library)], check=True)
        yield ctypes.CDLL(str(library))
