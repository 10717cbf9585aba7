"""What every initiator in Python does: obey lines, time writes, answer with samples."""

from __future__ import annotations

import json
import mmap
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from support.shapes import LAYOUTS, REGION_BYTES, all_shapes, network_sizes

Write = Callable[[], None]
Prepare = Callable[[Any, Any, Any], Write]


def region(fill: int) -> Any:
    """The memory that bytes move from, or to: as native/region.h has it, on whole and huge pages."""
    pages = mmap.mmap(-1, REGION_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[:] = fill
    return memory


def obey(prepare: Prepare) -> None:
    """`prepare(source offsets, target offsets, sizes)` makes what writes this layout."""
    writers: dict[int, list[Write]] = {}
    shapes = all_shapes() + network_sizes()
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "flow":
            print("flowed", _flow(prepare, *map(int, words[1:])), flush=True)
            continue
        number, operations = map(int, words)
        if number not in writers:
            writers[number] = [prepare(one.sources, one.targets, one.sizes) for one in shapes[number].layouts]
        samples = []
        for i in range(operations):
            write = writers[number][i % len(writers[number])]
            start = time.perf_counter_ns()
            write()
            samples.append((time.perf_counter_ns() - start) / 1e3)
        print("samples", json.dumps(samples), flush=True)


def _flow(prepare: Prepare, size: int, streams: int, window: int, operations: int) -> float:
    """Seconds for all operations; as native/layouts.h has it, but each window is one batch."""
    part = REGION_BYTES // streams

    def writers(stream: int) -> list[Write]:
        made = []
        for first in range(0, LAYOUTS * window, window):
            offsets = [stream * part + number * size % part for number in range(first, first + window)]
            places = np.array(offsets, np.uint64)
            made.append(prepare(places, places, np.full(window, size, np.uint64)))
        return made

    def run(batches: list[Write]) -> None:
        for number in range(operations // (streams * window)):
            batches[number % len(batches)]()

    threads = [threading.Thread(target=run, args=(writers(stream),)) for stream in range(streams)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start
