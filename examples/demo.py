"""Several processes pool their memory, write to and read from each other, measure it, and survive a kill -9.

Everything that moves is checked byte by byte; a difference ends the demo with a non-zero status and says what differed.
`python examples/demo.py --help` shows the options. The members' side is in `demo_member.py`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any

from demo_member import MIB, PIECES, Member, serve
from members import free_url, spawn

STEP_DEADLINE_S = 30.0


class Failed(Exception):
    """A member failed, died or did not answer; the sentence says which and how."""


class Worker:
    """One member as the director sees it: a process that obeys one step after the other."""

    def __init__(self, number: int) -> None:
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(theirs,), name=f"member {number}", daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, step: Callable[..., Any], *arguments: Any) -> None:
        self.pipe.send((step.__name__, arguments))

    def result(self) -> Any:
        try:
            if not self.pipe.poll(STEP_DEADLINE_S):
                raise Failed(f"{self.process.name} did not answer within {STEP_DEADLINE_S:g} s")
            worked, value = self.pipe.recv()
        except EOFError:
            self.process.join(5)
            raise Failed(f"{self.process.name} died with exit status {self.process.exitcode}") from None
        if not worked:
            raise Failed(f"{self.process.name}: {value}")
        return value

    def do(self, step: Callable[..., Any], *arguments: Any) -> Any:
        self.begin(step, *arguments)
        return self.result()


def all_do(workers: list[Worker], step: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The same step in all of them at the same time; the results in their order."""
    for worker in workers:
        worker.begin(step, *arguments)
    return [worker.result() for worker in workers]


def headline(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def show_arrival(workers: list[Worker], url: str, size_mib: int) -> None:
    headline(f"{len(workers)} processes, one pool")
    all_do(workers, Member.ready)
    started = time.monotonic()
    places = [workers[0].do(Member.enter, url, len(workers), size_mib)]  # the first one runs the store
    places += all_do(workers[1:], Member.enter, url, len(workers), size_mib)
    took_ms = (time.monotonic() - started) * 1000
    by_rank = sorted(zip(places, workers, strict=True), key=lambda pair: pair[0][0])
    workers[:] = [worker for _, worker in by_rank]
    print("  rank   pid       DRAM from        HBM from")
    for (rank, pid, dram, hbm), _ in by_rank:
        print(f"  {rank:4}   {pid:<7}   {dram:#014x}   {hbm:#014x}{'   runs the store' if rank == 0 else ''}")
    print(f"  initialize + create + join of all of them: {took_ms:.0f} ms")


def show_copies(workers: list[Worker]) -> None:
    headline("Everybody writes to and reads from everybody, compared byte by byte")
    everybody = list(range(len(workers)))
    for what, write, verify, arguments in (
        ("copy_data to every rank and back", Member.write_to_all, Member.verify_from_all, (everybody, 1)),
        (f"copy_data_batch, {PIECES} scattered pieces, numpy arguments", Member.write_batch, Member.verify_batch, ()),
        ("copy_data_2d, a tile of a matrix", Member.write_tile, Member.verify_tile, ()),
        ("asynchronous copies with wait(), streams", Member.write_queued, Member.verify_queued, ()),
        ("direct stores and loads through numpy arrays", Member.store_directly, Member.verify_stores, ()),
        ("copies between two other ranks", Member.copy_between_others, Member.verify_between_others, ()),
    ):
        all_do(workers, write, *arguments)
        checked = sum(all_do(workers, verify, *arguments))
        print(f"  {what:<56} {checked:>12,} bytes  ok")


def show_speed(workers: list[Worker]) -> None:
    headline("How fast: rank 0 writes into rank 1, medians, beside plain memcpy between the same addresses")
    for what, ours_s, memcpy_s, size_bytes, how in workers[0].do(Member.measure):
        ours, memcpy = _figure(ours_s, size_bytes), _figure(memcpy_s, size_bytes)
        print(f"  {what:<26} {ours:>12}   memcpy {memcpy:>12}   {memcpy_s / ours_s:5.2f} × as fast   ({how})")


def _figure(seconds: float, size_bytes: int) -> str:
    return f"{seconds * 1e6:.2f} µs" if size_bytes < MIB else f"{size_bytes / seconds / 1e9:.1f} GB/s"


def show_death(workers: list[Worker], url: str, size_mib: int) -> None:
    victim = workers.pop()
    rank = len(workers)
    headline(f"kill -9 of rank {rank} while all others copy to it")
    last_words = victim.do(Member.leave_last_words)
    all_do(workers, Member.hold_array, rank)
    all_do(workers, Member.start_copying, rank)
    killed_at = time.monotonic()
    victim.process.kill()
    for survivor, (code, failed_at, sentence, copies) in enumerate(all_do(workers, Member.report_failure)):
        after_ms = (failed_at - killed_at) * 1000
        print(f"  rank {survivor}: {code} after {after_ms:.1f} ms (and {copies:,} good copies): {sentence}")
        if code != -2014:
            raise Failed(f"rank {survivor} got {code}, expected -2014")
    victim.process.join(5)
    all_do(workers, Member.read_array, last_words)
    print("  arrays on the memory of the dead still show its last bytes")
    survivors = list(range(rank))
    all_do(workers, Member.write_to_all, survivors, 2)
    checked = sum(all_do(workers, Member.verify_from_all, survivors, 2))
    print(f"  the survivors go on copying among each other: {checked:,} bytes ok")

    workers.append(Worker(rank + 1))
    newcomer, pid, *_ = workers[-1].do(Member.enter, url, len(workers), size_mib)
    if newcomer != rank:
        raise Failed(f"the newcomer got rank {newcomer}, expected {rank}")
    everybody = [*survivors, rank]
    all_do(workers, Member.write_to_all, everybody, 3)
    checked = sum(all_do(workers, Member.verify_from_all, everybody, 3))
    print(f"  a newcomer, pid {pid}, has rank {rank} and its addresses again: {checked:,} bytes ok")


def bid_farewell(workers: list[Worker]) -> None:
    for worker in reversed(workers):  # rank 0 runs the store and goes last
        worker.do(Member.leave)
        worker.pipe.close()
        worker.process.join(5)
        if worker.process.exitcode != 0:
            raise Failed(f"{worker.process.name} ended with exit status {worker.process.exitcode}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Several processes pool their memory and show what they do.")
    parser.add_argument("--ranks", type=int, default=4, help="how many processes, 3 to 64 (default 4)")
    parser.add_argument("--size-mib", type=int, default=64, help="size of the large copy, 8 to 4096 (default 64)")
    options = parser.parse_args()
    if not (3 <= options.ranks <= 64 and 8 <= options.size_mib <= 4096):
        parser.error("--ranks goes from 3 to 64, --size-mib from 8 to 4096")
    url = free_url()
    workers = [Worker(number) for number in range(options.ranks)]
    try:
        show_arrival(workers, url, options.size_mib)
        show_copies(workers)
        show_speed(workers)
        show_death(workers, url, options.size_mib)
        bid_farewell(workers)
    except Failed as failure:
        print(f"\nFAILED: {failure}", file=sys.stderr)
        return 1
    finally:
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
    headline("Everything is as it should be, and nothing is left behind.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
