"""Transfers of this package by one of its routes, as a driver: `target ROUTE ADDRESS`, `initiator ROUTE ADDRESS SESSION
MEMORY`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import memfabric_hybrid as mf
from support.network_loop import obey, region

role, route, address, *told = sys.argv[1:]
way = {"tcp": mf.TransDataOpType.HOST_TCP, "ucx": mf.TransDataOpType.HOST_RDMA}[route]
engine = mf.TransferEngine()
memory = region(1 if role == "target" else 2)


def check(code: int) -> None:
    if code != 0:
        sys.exit(f"ours: {code}: {mf.get_last_err_msg()}")


def prepare(sources: Any, targets: Any, sizes: Any) -> Callable[[], None]:
    session, there = told[0], np.uint64(int(told[1]))
    here = np.uint64(memory.ctypes.data)
    if len(sizes) == 1:
        source, target, size = int(sources[0] + here), int(targets[0] + there), int(sizes[0])
        return lambda: check(engine.transfer_sync_write(session, source, target, size))
    mine, theirs = sources + here, targets + there
    return lambda: check(engine.batch_transfer_sync_write(session, mine, theirs, sizes))


check(engine.initialize(None, f"{address}:0", "Prefill", 0, way))
check(engine.register(memory))
if role == "target":
    print("ready", engine.session_id, memory.ctypes.data, flush=True)
    sys.stdin.read()
else:
    assert engine.route(told[0]).name == route, engine.route(told[0])
    obey(prepare)
