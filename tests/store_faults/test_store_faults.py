"""The campaign against the store: members move stamped bytes and make control calls while their store is killed,
restarted, stopped and moved, nodes of their etcd are killed and stopped, and members are killed and stopped.

Copies between those who are well never fail, control calls end in time, nobody's rank changes or is held twice,
everybody is whole again by themselves, and a line of the log explains each fault to those whom it concerns.
`scripts/soak store` runs it for long: MF_STORE_FAULT_SECONDS is the length of all worlds together, MF_STORE_FAULT_SEED
repeats the driver's choices.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos import final_checks
from chaos.plan import environment
from chaos.shared_state import Field
from chaos.slot_driver import Violation
from store_faults import faults, plan, worlds
from store_faults.driver import Driver
from support import campaigns, hosts
from support.workers import Cluster, WorkerError

GRACE_S = 240  # beyond the faults themselves: starting, recovering, ending
ALL_WELL_EVERY_S = 20.0
ALL_FAULTS_S = 60.0  # in this time every fault happens
LEAST_SUCCESSES = dict.fromkeys(
    (
        "pool write", "pool read", "pool batch", "heap barrier", "heap all_gather", "subgroup barrier", "value taken",
        "value released", "transfer write", "transfer read", "other pool create", "other pool join",
        "other pool extend", "other pool leave",
    ),
    3,
)  # fmt: skip
HOSTS = pytest.param("hosts", marks=hosts.needs_root)
WORLDS = ["restarts", "moves", "etcd", *([HOSTS] if plan.with_hosts() else [])]


@pytest.mark.soak
@pytest.mark.timeout(plan.seconds() / len(WORLDS) + GRACE_S)
@pytest.mark.parametrize("name", WORLDS)
def test_members_bear_what_befalls_their_store(name: str, tmp_path: Path) -> None:
    seed = campaigns.fresh_seed(plan.SEED_VARIABLE)
    with ExitStack() as stack:
        world = stack.enter_context(worlds.opened(name))
        workers = Cluster(plan.SLOTS, "store_faults.member", environment=environment(), places=world.places)
        driver = Driver(seed, tmp_path, world, stack.enter_context(workers))
        stack.callback(driver.close)
        failure = ""
        try:
            campaign(driver, plan.seconds() / len(WORLDS))
        except (Violation, WorkerError) as raised:
            failure = final_checks.report(driver, str(raised))
        if failure:
            pytest.fail(failure, pytrace=False)
        print(final_checks.summary(driver))
        print(driver.log_summary())


def campaign(driver: Driver, seconds: float) -> None:
    pauses = random.Random(f"{driver.seed}:pauses")
    driver.start_all()
    driver.expect_all_well()
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        look_at = min(ends_at, time.monotonic() + ALL_WELL_EVERY_S)
        while time.monotonic() < look_at:
            faults.inject(driver)
            driver.wait(pauses.choice([0.0, pauses.uniform(0, 1), pauses.uniform(0, 3)]))
        driver.expect_all_well()
    # Between hosts, the one that meets the others may die in that moment (docs/share_memory.md).
    final_checks.expect_clean_end(driver, rounds_apart=1 if driver.world.several_hosts else 0)
    driver.totals += driver.workers.call_all("totals")
    final_checks.expect_something_happened(driver, LEAST_SUCCESSES)
    if seconds > ALL_FAULTS_S:
        final_checks.expect_all_injected(driver)
    for slot in range(plan.SLOTS):
        driver.state.now(slot, Field.DYING)
    driver.workers.call_all("leave", "clean")
