"""What every initiator in Python does: obey lines, time writes, answer with samples."""

from __future__ import annotations

import json
import mmap
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from support.shapes import REGION_BYTES, all_shapes, network_sizes


def region(fill: int) -> Any:
    """The memory that bytes move from, or to: as native/region.h has it, on whole and huge pages."""
    pages = mmap.mmap(-1, REGION_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[:] = fill
    return memory


def obey(prepare: Callable[[Any, Any, Any], Callable[[], None]]) -> None:
    """`prepare(source offsets, target offsets, sizes)` makes what writes this layout."""
    writers: dict[int, list[Callable[[], None]]] = {}
    shapes = all_shapes() + network_sizes()
    print("ready", flush=True)
    for line in sys.stdin:
        number, operations = map(int, line.split())
        if number not in writers:
            writers[number] = [prepare(one.sources, one.targets, one.sizes) for one in shapes[number].layouts]
        samples = []
        for i in range(operations):
            write = writers[number][i % len(writers[number])]
            start = time.perf_counter_ns()
            write()
            samples.append((time.perf_counter_ns() - start) / 1e3)
        print("samples", json.dumps(samples), flush=True)
