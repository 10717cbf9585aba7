"""The pure state machines of store and members in simulated worlds: many small ones, where hardly a moment is without a
fault, and one with many members. The same seed is the same history, event by event.

`scripts/soak simulation` has more seeds, ten thousand members and hours. MF_SEED chooses the seeds, the failure names
the one, and MF_SIMULATION_SEED repeats it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import plan, simulation
from support import campaigns

SHARDS = 20  # of the seeds: so many tests, which share the machine
SEEDS = campaigns.length("MF_SIMULATION_SEEDS", 1000)
MEMBERS = campaigns.length("MF_SIMULATION_MEMBERS", 1024)
SECONDS = campaigns.length("MF_SIMULATION_SECONDS", 60)
WORLDS = campaigns.length("MF_SIMULATION_WORLDS", 1)  # with many members
TESTS = Path(__file__).resolve().parent.parent


def first_seed() -> int:
    """Of this run: another MF_SEED has none of the same."""
    return campaigns.seed() * 1_000_000


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(SHARDS))
def test_small_worlds(shard: int) -> None:
    summaries = [simulation.run(plan.small(seed)) for seed in range(first_seed() + shard, first_seed() + SEEDS, SHARDS)]
    print(simulation.total(summaries))
    assert sum(summary.faults for summary in summaries) > len(summaries), "something has to go wrong"
    assert sum(summary.gathers for summary in summaries) > 0
    assert sum(summary.store_lives for summary in summaries) > len(summaries)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(WORLDS))
def test_a_large_world(number: int) -> None:
    summary = simulation.run(plan.large(first_seed() + number, MEMBERS, SECONDS))
    print(summary)
    assert summary.grants >= 2 * MEMBERS, "each has a rank and a place"
    assert summary.gathers > 0


def test_replay() -> None:
    """One seed, as a failure names it; without one, that a history repeats itself."""
    seed = int(os.environ.get("MF_SIMULATION_SEED") or first_seed())
    chosen = plan.named(os.environ.get("MF_SIMULATION_PLAN") or "small", seed)
    print(chosen)
    summary = simulation.run(chosen)
    print(summary)
    assert simulation.run(chosen) == summary


def test_a_history_is_the_same_in_every_process() -> None:
    """Whatever the interpreter's hashes are."""
    program = "from simulation import plan, simulation; print(simulation.run(plan.small(7)).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": str(TESTS)},
            check=True, capture_output=True, timeout=60,
        ).stdout
        for number in ("1", "2")
    }  # fmt: skip
    assert digests == {f"{simulation.run(plan.small(7)).digest}\n".encode()}
