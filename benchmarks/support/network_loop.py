"""What every initiator in Python does: obey lines, time writes, answer with samples."""

from __future__ import annotations

import json
import mmap
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from support.shapes import REGION_BYTES, all_shapes, network_sizes

Wait = Callable[[], None]


def region(fill: int) -> Any:
    """The memory that bytes move from, or to: as native/region.h has it, on whole and huge pages."""
    pages = mmap.mmap(-1, REGION_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[:] = fill
    return memory


def obey(
    prepare: Callable[[Any, Any, Any], Callable[[], None]], submit: Callable[[int, int], Wait] | None = None
) -> None:
    """`prepare(source offsets, target offsets, sizes)` makes what writes this layout; `submit(offset, size)` starts a
    write and gives what waits for it.
    """
    writers: dict[int, list[Callable[[], None]]] = {}
    shapes = all_shapes() + network_sizes()
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "flow":
            assert submit is not None
            print("flowed", _flow(submit, *map(int, words[1:])), flush=True)
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


def _flow(submit: Callable[[int, int], Wait], size: int, streams: int, window: int, operations: int) -> float:
    """Seconds for all operations; as native/layouts.h has it."""
    part = REGION_BYTES // streams

    def run(stream: int) -> None:
        unanswered: deque[Wait] = deque()
        for i in range(len(range(stream, operations, streams))):
            if len(unanswered) == window:
                unanswered.popleft()()
            unanswered.append(submit(stream * part + i * size % part, size))
        for wait in unanswered:
            wait()

    threads = [threading.Thread(target=run, args=(stream,)) for stream in range(streams)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start
