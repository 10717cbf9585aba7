"""What a process costs, as the kernel counts it: CPU time, not wall time, so that other programs matter little."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Costs:
    cpu_ms: float
    resident_kib: float
    threads: int
    descriptors: int

    def __sub__(self, before: Costs) -> Costs:
        return Costs(
            self.cpu_ms - before.cpu_ms,
            self.resident_kib - before.resident_kib,
            self.threads - before.threads,
            self.descriptors - before.descriptors,
        )


def costs_of(pid: int) -> Costs:
    folder = Path(f"/proc/{pid}")
    tasks = list((folder / "task").iterdir())
    spent_ns = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    resident_pages = int((folder / "statm").read_text().split()[1])
    return Costs(spent_ns / 1e6, resident_pages * PAGE_BYTES / 1024, len(tasks), len(list((folder / "fd").iterdir())))
