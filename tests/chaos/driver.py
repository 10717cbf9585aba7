"""The driver of the chaos campaign: its slots and the store they share; what each fault does is in `faults`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.fault_schedule import FAULTS, FaultSchedule
from chaos.plan import SLOTS, switched_off
from chaos.slot_driver import SlotDriver, Violation
from support.workers import Cluster


class Driver(SlotDriver):
    """`workers` and `store` have been started; nobody has begun yet."""

    campaign, seed_variable = "chaos", "MF_CHAOS_SEED"

    def __init__(
        self, seed: int, folder: Path, store_url: str, ports: list[int], workers: Cluster, store: Cluster
    ) -> None:
        super().__init__(seed, folder, workers, FaultSchedule(seed, frozenset(FAULTS) - switched_off()))
        self.store_url = store_url
        self.ports = ports
        self.store = store
        self.store_in_trouble = False

    def start_all(self) -> None:
        self.store.call(0, "serve", self.store_url)
        for slot in range(SLOTS):
            self.begin(slot)
        self.wait_for_quiet()

    def begin_arguments(self, slot: int, life: int) -> tuple[Any, ...]:
        return slot, life, self.seed, self.store_url, self.ports, str(self.folder)

    def start_store(self, then: Callable[[Any], None]) -> None:
        self.store.begin_start(0)
        self.await_answer("the store in serve", self.store.begin(0, "serve", self.store_url), then)

    def watch(self) -> None:
        super().watch()
        if not self.store_in_trouble and not self.store.alive(0):
            raise Violation("the store has died, and nobody killed it")

    def store_report(self) -> str:
        return self.store.report(0, "has these stacks and this output")
