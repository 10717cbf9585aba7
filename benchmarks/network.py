"""Transfers between two hosts over TCP, beside the limit of a socket, UCX, and the engines of others, in one run.

The hosts are two network namespaces of this machine with a cable between them (so it needs root). Everybody writes the
same shapes from 512 MiB of its own into 512 MiB over there; the drivers take turns, each figure is the best round's
median.

    scripts/bench network [--rounds 5] [--only SHAPE] [--sizes] [--streams] [--peers] [--tls] [--ucx]

`--streams` adds what many writes reach together, by the number of streams (threads; the limit has a connection for
each) and by the window: so many writes of a stream are under way at a time, which are one batch of ours.
`--sizes` adds a row for every power of four from 4 KiB to 64 MiB and writes the plot results/network.svg.
`--peers` measures Mooncake and NIXL as well, `--tls` our own transfers with TLS, `--ucx` those by UCX over TCP, and its
driver as it is when it hears of a peer's end, as ours must: UCX then moves otherwise over TCP.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import struct
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from support.limits import BUILD, build
from support.network_drivers import Driver, Program
from support.report import Report, bar, best_median
from support.shapes import Shape, all_shapes, network_sizes
from support.two_hosts import two_hosts

from support import network_drivers, network_plot

SOCKET, UCX, OURS, OURS_BY_UCX = "one socket", "UCX", "ours", "ours by UCX"
UCX_WITH_ERRORS = "UCX that hears of ends"
PEERS = ("Mooncake", "NIXL")
BY_UCX_BAR = 0.9  # times as fast as UCX's driver that hears of ends, for every shape
BARS: dict[str, tuple[tuple[str, float], ...]] = {  # times as fast as whom
    "4KiB": ((UCX, 1 / 1.5),),
    "64MiB": ((SOCKET, 0.95), (UCX, 1.3)),
    "kv122": ((UCX, 1.0),),
    "4096x4KiB": ((SOCKET, 0.95), (UCX, 3.0)),
}
PEERS_BAR = 1.0  # for every shape
MOONCAKE = {  # its defaults refuse batches of 4096 pieces
    "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "8192",
    "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER": "8192",
}
OVER_TCP = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "cable"}
UCX_ROOT = Path(sysconfig.get_path("purelib")) / "libucx"  # of the Python package; the driver takes it, or the system's
_UCP = UCX_ROOT / "lib" / "libucp.so.0"
SAME_UCX = {"MF_UCX_LIBRARY": str(_UCP)} if _UCP.exists() else {}  # ours would take the system's first
MOST_OPERATIONS = 200  # of one sample
FLOW_SIZES, FLOW_STREAMS, FLOW_WINDOWS = (4 << 10, 64 << 10, 1 << 20), (1, 2, 4), (1, 4, 16)
FLOW_BYTES, MOST_FLOW_OPERATIONS = 512 << 20, 8192


def write_layouts(shapes: list[Shape], path: Path) -> None:
    """As benchmarks/native/layouts.h reads them."""
    numbers: list[int] = [len(shapes)]
    for shape in shapes:
        numbers.append(len(shape.layouts))
        for layout in shape.layouts:
            numbers.append(len(layout.sizes))
            for piece in zip(layout.sources, layout.targets, layout.sizes, strict=True):
                numbers.extend(map(int, piece))
    path.write_bytes(struct.pack(f"={len(numbers)}Q", *numbers))


def programs(layouts: Path, with_peers: bool, by_ucx: bool) -> list[Program]:
    build(f"-DMF_UCX_ROOT={UCX_ROOT}")
    binaries = BUILD / "benchmarks" / "native"
    chosen = [network_drivers.native(SOCKET, binaries / "tcp_limit", layouts), network_drivers.ours()]
    if (binaries / "ucx_limit").exists():
        ucx = network_drivers.native(UCX, binaries / "ucx_limit", layouts)
        chosen.append(dataclasses.replace(ucx, environment=OVER_TCP, polls=True))
        if by_ucx:
            environment = {**OVER_TCP, "MF_BENCH_PEER_ERRORS": "1"}
            chosen.append(dataclasses.replace(ucx, name=UCX_WITH_ERRORS, environment=environment, polls=True))
    else:
        print("UCX is not measured: neither libucx-dev nor the Python package libucx-cu12 is here")
    if with_peers:
        quiet = {**OVER_TCP, "NIXL_LOG_LEVEL": "ERROR"}
        wanted = (network_drivers.peer("Mooncake", "mooncake", MOONCAKE), network_drivers.peer("NIXL", "nixl", quiet))
        chosen += [program for program in wanted if program is not None]
    return chosen


def measure(drivers: list[Driver], number: int, shape: Shape, rounds: int) -> dict[str, float]:
    operations = min(shape.operations, MOST_OPERATIONS)
    samples: dict[str, list[list[float]]] = {driver.name: [] for driver in drivers}
    for _ in range(rounds):
        for driver in drivers:
            samples[driver.name].append(driver.run(number, operations))
    return {name: best_median(taken) for name, taken in samples.items()}


def tell(report: Report, shape: Shape, medians: dict[str, float]) -> None:
    ours = medians[OURS]
    ratios = {name: median / ours for name, median in medians.items() if name != OURS}
    bars = {**dict(BARS.get(shape.name, ())), **dict.fromkeys(PEERS, PEERS_BAR)}
    verdicts = [
        f"{ratios[name]:.2f} × {name}: {bar(ratios[name], limit, at_least=True)}"
        for name, limit in bars.items()
        if name in ratios
    ]
    if OURS_BY_UCX in medians and UCX_WITH_ERRORS in medians:
        by_ucx = medians[UCX_WITH_ERRORS] / medians[OURS_BY_UCX]
        verdicts.append(f"by UCX {by_ucx:.2f} × {UCX_WITH_ERRORS}: {bar(by_ucx, BY_UCX_BAR, at_least=True)}")
        verdicts.append(f"by UCX {medians[UCX] / medians[OURS_BY_UCX]:.2f} × {UCX}")
    verdicts += [f"{ratios[name]:.2f} × {name}" for name in ratios if name not in bars]
    figures = ", ".join(f"{name} {median:.1f}" for name, median in medians.items())
    row: dict[str, Any] = {"shape": shape.name, "bytes": shape.total_bytes, "median_us": medians, "ratios": ratios}
    speed = f"{shape.total_bytes / ours / 1e3:.2f} GB/s"
    report.add(f"{shape.name:>10}  {speed:>10}  µs: {figures}\n{'':24}{'; '.join(verdicts)}", **row)


def measure_flows(report: Report, drivers: list[Driver], rounds: int) -> None:
    for size, streams, window in itertools.product(FLOW_SIZES, FLOW_STREAMS, FLOW_WINDOWS):
        operations = min(FLOW_BYTES // size, MOST_FLOW_OPERATIONS)  # a multiple of every product of the other two
        speeds = {driver.name: 0.0 for driver in drivers}
        for _ in range(rounds):
            for driver in drivers:
                speeds[driver.name] = max(speeds[driver.name], driver.flow(size, streams, window, operations))
        ratio = speeds[OURS] / speeds[SOCKET]
        figures = ", ".join(f"{name} {speed / 1e9:.2f}" for name, speed in speeds.items())
        what = f"{size >> 10:5} KiB, {streams} streams, window {window:2}"
        row: dict[str, Any] = {"flow_bytes": size, "streams": streams, "window": window, "bytes_per_s": speeds}
        report.add(f"{what}  GB/s: {figures}; {ratio:.2f} × the limit", **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="one shape")
    parser.add_argument("--sizes", action="store_true", help="all sizes, and a plot")
    parser.add_argument("--streams", action="store_true", help="by number of streams and window")
    parser.add_argument("--peers", action="store_true", help="Mooncake and NIXL as well")
    parser.add_argument("--tls", action="store_true", help="ours with TLS as well")
    parser.add_argument("--ucx", action="store_true", help="ours by UCX as well")
    options = parser.parse_args()
    shapes = all_shapes() + network_sizes()
    report = Report("network")
    with contextlib.ExitStack() as stack:
        layouts = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "layouts"
        write_layouts(shapes, layouts)
        chosen = programs(layouts, options.peers, options.ucx)
        hosts = stack.enter_context(two_hosts())
        if options.tls:
            certificates = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            chosen.append(network_drivers.ours_with_tls(certificates))
        if options.ucx:
            chosen.append(network_drivers.ours_by_ucx({"MF_UCX_DEVICES": "tcp:cable", **SAME_UCX}))
        drivers = [stack.enter_context(network_drivers.started(program, hosts)) for program in chosen]
        for number, shape in enumerate(shapes):
            is_size = number >= len(all_shapes())
            if options.only not in (None, shape.name) or (is_size and not options.sizes):
                continue
            tell(report, shape, measure(drivers, number, shape, options.rounds))
        shape_rows = list(report.rows)
        if options.streams:
            measure_flows(report, [driver for driver in drivers if driver.name in (SOCKET, OURS)], options.rounds)
    report.save()
    if options.sizes:
        network_plot.save(shape_rows)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failure:
        raise SystemExit(str(failure)) from None
