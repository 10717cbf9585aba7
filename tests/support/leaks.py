"""What a test left behind: descriptors, mapped memory files, threads, processes, /dev/shm entries.

`Snapshot.take()` before, `wait_for_leaks(before)` after: the differences, each in a sentence, or nothing.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from support import processes

# Native threads that start with the first need of them and stay for the life of the process, with the reason.
# Anything else that outlives a test is a leak.
LASTING_THREADS: dict[str, str] = {
    "mf-copy": "the copy engine's threads are shared by all objects and joined at exit",
}
# Memory files of the same kind.
LASTING_FILES: dict[str, str] = {
    "/memfd:memfabric-epochs": "the page that shows peers which threads of this process are inside their memory",
}
# In /dev/shm: semaphores of Python's multiprocessing, which nothing here makes; data of other tests' etcd servers.
OTHERS_FILES = ("sem.mp-", "memfabric-etcd-")
PATIENCE_S = 2.0  # a closed connection's peer, or a thread that was told to stop, may need a moment
_POLL_S = 0.01


@dataclass(frozen=True)
class Snapshot:
    """Everything of this process that a test could forget to give back."""

    descriptors: dict[int, str]  # number → what it points to
    mapped_files: Counter[str]  # memory files that are mapped, although their descriptor may be closed
    threads: dict[int, str]  # kernel id → name
    children: frozenset[int]
    shared_memory: frozenset[str]

    @classmethod
    def take(cls) -> Snapshot:
        return cls(
            descriptors=_descriptors(),
            mapped_files=_mapped_files(),
            threads=_threads(),
            children=frozenset(processes.children()),
            shared_memory=frozenset(name for name in os.listdir("/dev/shm") if not name.startswith(OTHERS_FILES)),
        )

    def leaks_since(self, before: Snapshot) -> list[str]:
        """One sentence for each thing that is in this snapshot and not in the earlier one."""
        return [
            *_descriptor_leaks(before.descriptors, self.descriptors),
            *(
                f"memory file still mapped: {name}"
                for name in sorted((self.mapped_files - before.mapped_files).elements())
            ),
            *(
                f"thread still running: {name} (tid {tid})"
                for tid, name in sorted(self.threads.items())
                if tid not in before.threads
            ),
            *(
                f"child process still running: {processes.command_line(pid)} (pid {pid}, state {processes.state(pid)})"
                for pid in sorted(self.children - before.children)
            ),
            *(f"entry left in /dev/shm: {name}" for name in sorted(self.shared_memory - before.shared_memory)),
        ]


def wait_for_leaks(before: Snapshot, patience_s: float = PATIENCE_S) -> list[str]:
    """What is still there when patience ends; returns at once when nothing is. Kills child processes it reports."""
    give_up_at = time.monotonic() + patience_s
    collected = False
    while True:
        _reap_the_dead(before.children)
        after = Snapshot.take()
        leaks = after.leaks_since(before)
        if not leaks:
            return []
        if not collected:
            gc.collect()  # objects in reference cycles close what they own only now
            collected = True
        elif time.monotonic() >= give_up_at:
            _kill(after.children - before.children)
            return leaks
        else:
            time.sleep(_POLL_S)


def _descriptors() -> dict[int, str]:
    found: dict[int, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        if not target.startswith(tuple(LASTING_FILES)):
            found[int(number)] = target
    return found


def _descriptor_leaks(before: dict[int, str], after: dict[int, str]) -> list[str]:
    # By what they point to, not by number: something that was closed and opened again is no leak.
    surplus = Counter(after.values()) - Counter(before.values())
    leaks = []
    for number, target in sorted(after.items(), reverse=True):
        if surplus[target] > 0:
            surplus[target] -= 1
            leaks.append(f"file descriptor still open: {target} (fd {number})")
    return leaks[::-1]


def _mapped_files() -> Counter[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    names = [line[line.index("/memfd:") :] for line in lines if "/memfd:" in line]
    return Counter(name for name in names if not name.startswith(tuple(LASTING_FILES)))


def _threads() -> dict[int, str]:
    python_names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[int, str] = {}
    for task in os.listdir("/proc/self/task"):
        try:
            name = Path(f"/proc/self/task/{task}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if not name.startswith(tuple(LASTING_THREADS)):
            found[int(task)] = python_names.get(int(task), f"native {name}")
    return found


def _reap_the_dead(known: frozenset[int]) -> None:
    # A process that was adopted and is dead holds nothing; only the running ones are leaks.
    for pid in processes.children() - known:
        if processes.state(pid) == "Z":
            processes.reap_if_dead(pid)


def _kill(pids: frozenset[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
