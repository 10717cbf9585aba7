"""Ranks that fail at the worst moment: while the group is told of earlier ones."""

from __future__ import annotations

from typing import Any

import pytest

from memfabric_hybrid.shm import runtime
from support import heap_worker
from support.pause_points import held
from support.threads import Beside


def test_departure_while_the_group_is_told_of_earlier_ones(
    store_url: str, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank leaves in the moment in which failed ranks become the group's business."""
    monkeypatch.setenv("MF_WORKER_INDEX", "0")
    with workers(2) as cluster, held("shm.failed_ranks.tell") as point:
        assert heap_worker.enter(store_url, 2) == (0, "")
        assert cluster.call(1, "enter", store_url, 2) == (0, "")
        other = cluster.begin(1, "try_to_create", 2)
        creating = Beside(lambda: heap_worker.try_to_create(2))
        point.wait_until_reached()
        pool = runtime.current().node.pools()[0]
        pool.on_lost(pool.group.stamps()[1].instance)  # the exchange's words for a broken link
        assert 1 in pool.group.gone()
        point.release()
        assert "rank 1 is gone" in creating.result()[1]
        other.result()
    heap_worker.uninitialize()
