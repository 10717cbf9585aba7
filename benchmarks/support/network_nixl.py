"""NIXL with its UCX backend, as a driver: `target ADDRESS`, `initiator ADDRESS METADATA MEMORY`.

Handles are made before the clock starts: the best case, in which the same blocks are written again.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any

from nixl._api import nixl_agent, nixl_agent_config

from support.network_loop import obey, region

role, address, *told = sys.argv[1:]
agent = nixl_agent(role, nixl_agent_config(enable_prog_thread=True, backends=["UCX"]))
memory = region(1 if role == "target" else 2)
agent.register_memory([(memory.ctypes.data, memory.size, 0, "")], "DRAM")


def prepare(sources: Any, targets: Any, sizes: Any) -> Callable[[], None]:
    here, there = int(memory.ctypes.data), int(told[1])
    mine = agent.get_xfer_descs([(here + int(a), int(n), 0) for a, n in zip(sources, sizes, strict=True)], "DRAM")
    theirs = agent.get_xfer_descs([(there + int(b), int(n), 0) for b, n in zip(targets, sizes, strict=True)], "DRAM")
    handle = agent.initialize_xfer("WRITE", mine, theirs, peer, b"")

    def write() -> None:
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        assert state == "DONE", state

    return write


if role == "target":
    print("ready", base64.b64encode(agent.get_agent_metadata()).decode(), memory.ctypes.data, flush=True)
    sys.stdin.read()
else:
    peer = agent.add_remote_agent(base64.b64decode(told[0]))
    peer = peer.decode() if isinstance(peer, bytes) else peer
    obey(prepare)
