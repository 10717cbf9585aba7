"""Starts the members of an example: real processes, which share a store URL and a barrier to meet at."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import socket
import sys
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

__all__ = ["Barrier", "free_url", "run", "spawn"]

DEADLINE_S = 30.0
spawn = multiprocessing.get_context("spawn")


def free_url() -> str:
    """An address for a store on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def run(member: Callable[..., None], ranks: int, *arguments: Any, deadline_s: float = DEADLINE_S) -> int:
    """Calls `member(store_url, together, *arguments)` in as many processes as ranks; 0 if all of them ended well."""
    together = spawn.Barrier(ranks, timeout=DEADLINE_S)
    url = free_url()
    members = [spawn.Process(target=member, args=(url, together, *arguments), daemon=True) for _ in range(ranks)]
    for process in members:
        process.start()
    running = list(members)
    while running:
        ended = multiprocessing.connection.wait([process.sentinel for process in running], timeout=deadline_s)
        for process in [process for process in running if process.sentinel in ended]:
            running.remove(process)
            process.join()
            if process.exitcode != 0:
                together.abort()  # whoever waits for it need not wait for the deadline
        if not ended:
            print(f"{len(running)} of {ranks} processes did not end within {deadline_s:g} s", file=sys.stderr)
            break
    return int(any(process.exitcode != 0 for process in members))
