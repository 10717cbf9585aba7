"""The simulation finds bugs: plausible ones, switched on one at a time, each within a bounded number of seeds."""

from __future__ import annotations

import re

import pytest

from simulation import mutations, plan, simulation
from simulation.mutations import Mutation

MOST_SEEDS = 400


@pytest.mark.parametrize("mutation", mutations.ALL, ids=lambda mutation: mutation.__name__)
def test_a_mutation_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    found = ((seed, failure) for seed in range(1, MOST_SEEDS + 1) if (failure := failure_of(seed)) is not None)
    seed, failure = next(found, (0, ""))
    assert failure, f"not found with {MOST_SEEDS} seeds"
    sentence, _, rest = failure.partition("\n")
    print(sentence)
    assert re.match(rf"seed {seed} \(small\), event \d+ at [\d.]+ s: .+", sentence)
    assert f"MF_SIMULATION_SEED={seed} MF_SIMULATION_PLAN=small scripts/test tests/simulation -k replay" in rest
    assert failure_of(seed) == failure, "a failing seed fails in the same way again"
    monkeypatch.undo()
    assert failure_of(seed) is None, "it is the mutation that was found"


def failure_of(seed: int) -> str | None:
    try:
        simulation.run(plan.small(seed))
    except simulation.SimulationFailed as failure:
        return str(failure)
    return None
