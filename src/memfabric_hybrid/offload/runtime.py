"""The offload memory of this process, from `offload.initialize` to `offload.uninitialize`; a forked child has none."""

from __future__ import annotations

import msgspec

from memfabric_hybrid import _native, settings
from memfabric_hybrid.api.runtime_slot import RuntimeSlot
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import MallocFailed
from memfabric_hybrid.machine import signal_handlers
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.offload.host_memory import HostMemory
from memfabric_hybrid.offload.local_slot import LocalSlot
from memfabric_hybrid.offload.plan import TITLE, Plan
from memfabric_hybrid.offload.shared_slot import SharedSlot
from memfabric_hybrid.offload.slot import Slot
from memfabric_hybrid.store import FAREWELL_S


class Runtime(msgspec.Struct):
    plan: Plan
    memory: HostMemory

    def end(self, farewell: Deadline) -> None:
        self.memory.close()
        self.memory.slot.end(farewell)


_slot = RuntimeSlot[Runtime](
    "The offload memory",
    "offload memory is not initialised in this process: call offload.initialize() first",
    FAREWELL_S,
)
_inherited: list[Runtime] = []  # in a forked child: addresses that the program has stay memory, the parent's
stop = _slot.stop
current = _slot.current


def start(plan: Plan) -> None:
    """Again while initialised: nothing happens, and the log says so if something else was asked for."""
    used = _slot.start(lambda interruption: _make(plan, interruption))
    if used is not None:
        _slot.tell_ignored(_shown(plan), _shown(used.plan))


def _make(plan: Plan, interruption: Interruption) -> Runtime:
    _native.set_copy_threads(settings.copy_threads())
    try:
        slot: Slot = LocalSlot(plan) if plan.group is None else SharedSlot(plan, plan.group, interruption)
    except OSError as failure:
        signal_handlers.pass_on(failure)
        raise MallocFailed(f"{TITLE} with {plan.layout} cannot be made: {failure}") from failure
    return Runtime(plan, HostMemory(slot, plan.layout.max_dram))


def _shown(plan: Plan) -> dict[str, object]:
    """As a program asks for it."""
    group = plan.group
    return {
        "scene": "LOCAL" if group is None else "SHARED",
        "reserve_size": plan.layout.max_dram,
        "alloc_size": plan.alloc_bytes,
        "world_size": None if group is None else group.world_size,
        "rank_id": None if group is None else group.rank,
        "store_url": None if group is None else str(group.url),
        "local_world_size": None if group is None else group.local_world_size,
        "init_timeout": None if group is None else group.timeout_s,
    }


def abandon_after_fork() -> None:
    """In a forked child: the parent's memory is not ours to hand out."""
    runtime = _slot.empty_after_fork()
    if runtime is not None:
        runtime.memory.slot.abandon_after_fork()
        _inherited.append(runtime)
