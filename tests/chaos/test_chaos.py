"""The chaos campaign: everything at once, in several processes, while a referee kills, stops and starves them.

`scripts/soak chaos` runs it for long. MF_CHAOS_SECONDS is its length, MF_CHAOS_SEED repeats the referee's choices.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos import mishaps, plan, verdict
from chaos.board import Field
from chaos.referee import Referee, Violation
from chaos.wholeness import expect_whole
from support.ports import reserved_port
from support.workers import Cluster, WorkerError

GRACE_S = 240  # beyond the campaign itself: starting, becoming whole, ending


@pytest.mark.soak
@pytest.mark.timeout(plan.seconds() + GRACE_S)
def test_everything_bears_everything(store_url: str, tmp_path: Path) -> None:
    seed = plan.seed()
    print(f"MF_CHAOS_SEED={seed}")
    with ExitStack() as stack:
        ports = [stack.enter_context(reserved_port()) for _ in range(plan.SLOTS)]
        store = stack.enter_context(Cluster(1, "store.server_worker", environment=plan.environment()))
        workers = stack.enter_context(Cluster(plan.SLOTS, "chaos.member", environment=plan.environment()))
        referee = Referee(seed, tmp_path, store_url, ports, workers, store)
        stack.callback(referee.close)
        failure = ""
        try:
            campaign(referee, plan.seconds())
        except (Violation, WorkerError) as raised:
            failure = verdict.report(referee, str(raised))
        if failure:
            pytest.fail(failure, pytrace=False)
        print(verdict.summary(referee))
    verdict.expect_no_sockets(store_url)


def campaign(referee: Referee, seconds: float) -> None:
    pauses = random.Random(f"{referee.seed}:pauses")
    referee.start_all()
    expect_whole(referee)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at or not referee.deck.all_dealt_once:
        mishaps.play(referee)
        referee.wait(pauses.choice([0.0, pauses.uniform(0, 1), pauses.uniform(0, 3)]))
    referee.wait_for_peace()
    referee.say("peace")
    expect_whole(referee)
    verdict.expect_order(referee)
    referee.totals += referee.workers.call_all("totals")
    verdict.expect_something_happened(referee)
    for slot in range(plan.SLOTS):
        referee.board.now(slot, Field.DYING)
    referee.workers.call_all("leave", "clean")
