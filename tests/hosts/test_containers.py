"""Members in containers that share a host's network: they are neighbours, though their numbers and users differ."""

from __future__ import annotations

import pytest

from support import host_members, hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root


@pytest.mark.parametrize("own_users", [True, False], ids=["own users", "the host's users"])
def test_containers_of_one_host_share_memory(hosts3: Network, own_users: bool) -> None:
    url = host_members.store_url(hosts3)
    container = hosts3.hosts[1].container(own_users=own_users)
    places = [hosts3.hosts[0].place, container, container, hosts3.hosts[1].place]
    with Cluster(4, "support.pool_worker", places=places) as cluster:
        host_members.start_store(cluster, url)
        assert [host_members.take_part(cluster, index, url) for index in (1, 2, 3)] == [0, 1, 2]
        cluster.call_all("wait_for_view", [0, 1, 2], indices=(1, 2, 3))
        for writer, owner in ((1, 1), (2, 2), (3, 0)):
            assert cluster.call(writer, "write", owner, 0, b"from outside") == (0, "")
            assert cluster.call(owner + 1, "load", owner, 0, 12) == b"from outside"
        cluster.kill(1)
        cluster.call_all("wait_for_view", [1, 2], indices=(2, 3))
        host_members.wait_until_whole(cluster, (2, 3), [1, 2])
