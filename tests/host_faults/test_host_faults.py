"""The campaign across hosts: pools, heaps and engines move stamped bytes between three hosts while one of them is cut
off, slowed, stopped or killed, or the store's is cut off.

Calls towards that host end in time with a code and a sentence; all others work; after the fault everything works again,
nobody but the killed was started anew, no byte is wrong, and nobody spins. `scripts/soak hosts` has 50 rounds;
MF_HOST_FAULT_SEED repeats the choices of a run.
"""

from __future__ import annotations

import pytest

from host_faults import faults, plan
from host_faults.driver import Driver
from support import campaigns, hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
ROUNDS = 2


@pytest.mark.soak
def test_hosts_fail_and_come_back() -> None:
    seed = campaigns.fresh_seed("MF_HOST_FAULT_SEED")
    count = campaigns.length("MF_HOST_FAULT_ROUNDS", ROUNDS)
    with Network(plan.HOSTS + 1) as network:
        places = [*network.places(plan.RANKS_PER_HOST)[: plan.RANKS], network.hosts[faults.STORE_HOST].place]
        with Cluster(len(places), "host_faults.member", environment=plan.environment(), places=places) as cluster:
            driver = Driver(network, cluster, seed)
            driver.start()
            for number, round_ in enumerate(faults.rounds(seed, count)):
                print(f"round {number}: {round_}", flush=True)
                driver.run(round_)
            driver.stop()
            print(driver.totals)
