"""Mooncake's transfer engine over TCP, as a driver: `target ADDRESS`, `initiator ADDRESS PEER MEMORY`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from mooncake.engine import TransferEngine

from support.network_loop import obey, region

role, address, *told = sys.argv[1:]
engine = TransferEngine()
assert engine.initialize(address, "P2PHANDSHAKE", "tcp", "") == 0
memory = region(1 if role == "target" else 2)
assert engine.register_memory(memory.ctypes.data, memory.size) == 0


def prepare(sources: Any, targets: Any, sizes: Any) -> Callable[[], None]:
    here, there = int(memory.ctypes.data), int(told[1])
    mine, theirs = [here + int(a) for a in sources], [there + int(b) for b in targets]
    lengths = [int(n) for n in sizes]

    def write() -> None:
        if len(lengths) == 1:
            code = engine.transfer_sync_write(told[0], mine[0], theirs[0], lengths[0])
        else:
            code = engine.batch_transfer_sync_write(told[0], mine, theirs, lengths)
        assert code == 0, code

    return write


if role == "target":
    print("ready", f"{address}:{engine.get_rpc_port()}", memory.ctypes.data, flush=True)
    sys.stdin.read()
else:
    obey(prepare)
