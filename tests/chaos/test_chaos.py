"""The chaos campaign: everything at once, in several processes, while a driver kills, stops and starves them.

`scripts/soak chaos` runs it for long. MF_CHAOS_SECONDS is its length, MF_CHAOS_SEED repeats the driver's choices.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos import faults, final_checks, plan
from chaos.driver import Driver
from chaos.recovery import expect_recovered
from chaos.shared_state import Field
from chaos.slot_driver import Violation
from support.ports import reserved_port
from support.workers import Cluster, WorkerError

GRACE_S = 240  # beyond the campaign itself: starting, recovering, ending


@pytest.mark.soak
@pytest.mark.timeout(plan.seconds() + GRACE_S)
def test_everything_bears_everything(store_url: str, tmp_path: Path) -> None:
    seed = plan.seed()
    print(f"MF_CHAOS_SEED={seed}")
    with ExitStack() as stack:
        ports = [stack.enter_context(reserved_port()) for _ in range(plan.SLOTS)]
        store = stack.enter_context(Cluster(1, "store.server_worker", environment=plan.environment()))
        workers = stack.enter_context(Cluster(plan.SLOTS, "chaos.member", environment=plan.environment()))
        driver = Driver(seed, tmp_path, store_url, ports, workers, store)
        stack.callback(driver.close)
        failure = ""
        try:
            campaign(driver, plan.seconds())
        except (Violation, WorkerError) as raised:
            failure = final_checks.report(driver, str(raised))
        if failure:
            pytest.fail(failure, pytrace=False)
        print(final_checks.summary(driver))
    final_checks.expect_no_sockets(store_url)


def campaign(driver: Driver, seconds: float) -> None:
    pauses = random.Random(f"{driver.seed}:pauses")
    driver.start_all()
    expect_recovered(driver)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at or not driver.schedule.all_injected_once:
        faults.inject(driver)
        driver.wait(pauses.choice([0.0, pauses.uniform(0, 1), pauses.uniform(0, 3)]))
    driver.wait_for_quiet()
    driver.say("quiet")
    expect_recovered(driver)
    final_checks.expect_clean_end(driver)
    driver.totals += driver.workers.call_all("totals")
    final_checks.expect_something_happened(driver, final_checks.LEAST_SUCCESSES)
    final_checks.expect_all_injected(driver)
    for slot in range(plan.SLOTS):
        driver.state.now(slot, Field.DYING)
    driver.workers.call_all("leave", "clean")
