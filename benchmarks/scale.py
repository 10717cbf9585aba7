"""What members and sessions cost, and how that grows: while nothing happens, and when one more member joins.

    scripts/bench scale [--ranks 2 8 16 32] [--sessions 1 8 64] [--idle 20] [--only members|sessions|joins]
                        [--joins 64 256 1024] [--simulated 64 1024 10000]

A member has a pool, a heap and an engine; the store is a process of its own. Sessions lead from one process to as many
engines of another one; each has been written to once. "two hosts" are two network namespaces (so it needs root), with
half of the members each, or the engines on the other one. CPU time is what the kernel counted for the process, so a
machine that does other things as well changes it little; idle processes are looked at for --idle seconds.

Joins: the messages, bytes and CPU time that a member costs the store when it joins a pool of --joins real members, or
of --simulated ones (`support/join_costs.py` says how).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support.client_crowd import ClientFailed, TooSlow
from support.join_costs import World, real_world, server_command, simulated_world
from support.process_costs import Costs, costs_of
from support.report import Report, bar
from support.simulated_store import Script
from support.two_hosts import INITIATOR, TARGET, two_hosts

SCRIPT = Path(__file__).parent / "support" / "scale_process.py"
IDLE_BAR = 1.0  # % of a core
SETTLED_S = 3.0  # after the last call, before idle begins
LOOPBACK = "127.0.0.1"
Where = Callable[..., list[str]]  # the command line that runs a command on the host of an address


class Process:
    """One `scale_process`; gone when the stack is left."""

    def __init__(self, stack: contextlib.ExitStack, command: list[str]) -> None:
        self._process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self._process.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    def told(self) -> Any:
        """What it says next; returns when it is ready."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready "):
                return json.loads(line.removeprefix("ready "))
        raise SystemExit("a process of the benchmark has ended")

    def tell(self, what: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return self.told()


def idle(processes: Sequence[Process], seconds: float) -> list[float]:
    """% of a core that each of them uses while it has nothing to do."""
    time.sleep(SETTLED_S)
    began, before = time.monotonic(), [costs_of(process.pid) for process in processes]
    time.sleep(seconds)
    took_ms = (time.monotonic() - began) * 1000
    return [
        (costs_of(process.pid).cpu_ms - earlier.cpu_ms) / took_ms * 100
        for process, earlier in zip(processes, before, strict=True)
    ]


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


def members(report: Report, on: Where, hosts: Sequence[str], ranks: int, idle_s: float) -> None:
    url = f"tcp://{hosts[0]}:{free_port()}"
    python = (sys.executable, str(SCRIPT))
    with contextlib.ExitStack() as stack:
        store = Process(stack, on(hosts[0], *python, "store", url))
        store.told()
        places = [hosts[rank * len(hosts) // ranks] for rank in range(ranks)]
        started = [
            Process(stack, on(place, *python, "member", url, str(ranks), str(rank), place))
            for rank, place in enumerate(places)
        ]
        for process in started:
            process.told()
        costs = [costs_of(process.pid) for process in started]
        *shares, store_share = idle([*started, store], idle_s)
        row = {
            "what": "members",
            "hosts": len(hosts),
            "ranks": ranks,
            "start_cpu_ms": statistics.mean(cost.cpu_ms for cost in costs),
            "resident_mib": statistics.mean(cost.resident_kib for cost in costs) / 1024,
            "threads": max(cost.threads for cost in costs),
            "descriptors": max(cost.descriptors for cost in costs),
            "idle_percent": statistics.mean(shares),
            "idle_percent_most": max(shares),
            "store_idle_percent": store_share,
        }
        report.add(
            f"{named(hosts)}, {ranks:2} members: each {row['start_cpu_ms']:5.0f} ms of CPU to start, "
            f"{row['resident_mib']:5.1f} MiB, {row['threads']} threads, {row['descriptors']} descriptors; idle: "
            f"{row['idle_percent']:.3f} % of a core, at most {row['idle_percent_most']:.3f} % "
            f"{bar(max(shares), IDLE_BAR)}; the store {store_share:.3f} %",
            **row,
        )


def sessions(report: Report, on: Where, hosts: Sequence[str], count: int, idle_s: float) -> None:
    python = (sys.executable, str(SCRIPT))
    with contextlib.ExitStack() as stack:
        target = Process(stack, on(hosts[-1], *python, "targets", hosts[-1], str(count + 1)))
        initiator = Process(stack, on(hosts[0], *python, "initiator", hosts[0]))
        first, *others = target.told()
        initiator.told()
        initiator.tell([first])  # what the first session of a process costs is no matter of sessions
        before = [costs_of(process.pid) for process in (initiator, target)]
        initiator.tell(others)
        ours, theirs = (
            costs_of(process.pid) - earlier for process, earlier in zip((initiator, target), before, strict=True)
        )
        shares = idle([initiator, target], idle_s)
        row = {"what": "sessions", "hosts": len(hosts), "sessions": count}
        row |= {f"initiator_{name}": value / count for name, value in vars(ours).items()}
        row |= {f"target_{name}": value / count for name, value in vars(theirs).items()}
        row |= {"initiator_idle_percent": shares[0], "target_idle_percent": shares[1]}
        report.add(
            f"{named(hosts)}, {count:2} more sessions: each costs the initiator {per_session(ours, count)}, the target "
            f"{per_session(theirs, count)}; idle: {shares[0]:.3f} and {shares[1]:.3f} % of a core "
            f"{bar(max(shares), IDLE_BAR)}",
            **row,
        )


def joins(report: Report, sizes: Sequence[int], simulated: Sequence[int]) -> None:
    print(
        f"{'':>6} {'':>9}  {'the last one sends':>20}  {'gets':>20}  {'the others get':>22}  {'store CPU':>10}"
        f"  {'start of all, per member: sends, gets, store CPU':>50}"
    )
    scripts = [script for size in sizes if (script := join_real(report, size)) is not None]
    for size in simulated if scripts else ():
        tell_world(report, simulated_world(size, scripts[-1]))


def join_real(report: Report, size: int) -> Script | None:
    """What the last member said; None if they could not all join in time."""
    url = f"tcp://{LOOPBACK}:{free_port()}"
    with contextlib.ExitStack() as stack:
        store = Process(stack, server_command(url))
        store.told()
        try:
            world, script = real_world(size, url, store.pid, store.tell)
        except (TooSlow, ClientFailed) as failure:
            report.add(f"{size:>6} {'real':>9}  {failure}", what="joins", size=size, failure=str(failure))
            return None
    tell_world(report, world)
    return script


def tell_world(report: Report, world: World) -> None:
    last, start = world.last, world.start
    text = (
        f"{world.size:>6} {'simulated' if start is None else 'real':>9}"
        f"  {counted(last.own_requests, last.own_request_bytes):>20}"
        f"  {counted(last.own_messages, last.own_message_bytes):>20}"
        f"  {counted(last.others_messages, last.others_message_bytes):>22}  {last.server_cpu_us:>7.0f} µs"
    )
    if start is not None:
        messages, size_bytes = (
            start.own_messages + start.others_messages,
            start.own_message_bytes + start.others_message_bytes,
        )
        text += (
            f"  {counted(start.own_requests, start.own_request_bytes)}, {counted(messages, size_bytes)},"
            f" {start.server_cpu_us:.0f} µs; it took {world.start_s or 0:.1f} s, the last join"
            f" {(world.join_s or 0) * 1000:.0f} ms, its process {(world.process_kib or 0) / 1024:.1f} MiB"
        )
    report.add(text, what="joins", **dataclasses.asdict(world))


def counted(messages: float, size_bytes: float) -> str:
    return f"{messages:.0f} ({size_bytes / 1024:.1f} KiB)"


def per_session(costs: Costs, count: int) -> str:
    return (
        f"{costs.cpu_ms / count:.2f} ms of CPU, {costs.resident_kib / count:.0f} KiB, {costs.threads / count:.2f} "
        f"threads, {costs.descriptors / count:.2f} descriptors"
    )


def named(hosts: Sequence[str]) -> str:
    return "one host " if len(hosts) == 1 else "two hosts"


@contextlib.contextmanager
def places() -> Iterator[list[tuple[Where, tuple[str, ...]]]]:
    """One host, and if we may make them, two."""
    one: tuple[Where, tuple[str, ...]] = (lambda address, *command: list(command), (LOOPBACK,))
    if os.geteuid() != 0:
        print("one host only: hosts are network namespaces, and only root can make them")
        yield [one]
        return
    with two_hosts() as hosts:
        yield [one, (hosts.on, (INITIATOR, TARGET))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 16, 32])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    parser.add_argument("--joins", type=int, nargs="+", default=[64, 256, 1024], help="real members")
    parser.add_argument("--simulated", type=int, nargs="+", default=[64, 256, 1024, 10000], help="members")
    parser.add_argument("--only", choices=["members", "sessions", "joins"])
    options = parser.parse_args()
    report = Report("scale")
    if options.only != "joins":
        with places() as found:
            for on, hosts in found:
                for ranks in options.ranks if options.only != "sessions" else ():
                    members(report, on, hosts, ranks, options.idle)
                for count in options.sessions if options.only != "members" else ():
                    sessions(report, on, hosts, count, options.idle)
    if options.only in (None, "joins"):
        joins(report, options.joins, options.simulated)
    report.save()


if __name__ == "__main__":
    main()
