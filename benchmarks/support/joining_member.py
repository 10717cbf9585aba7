"""A member of Big Memory as its crowd can be told: on a host of its own, as far as it knows."""

from __future__ import annotations

import os
import time

import memfabric_hybrid as mf
from memfabric_hybrid import bm

POOL_BYTES = 2 << 20
PATIENCE_S = 300
ERRORS = 3  # a thousand members that wait for each other say so


class JoiningMember:
    def __init__(self, url: str, rank: int, size: int) -> None:
        self._url, self._rank, self._size = url, rank, size

    def join(self) -> float:
        """When it was through, by the machine's monotonic clock."""
        mf.set_log_level(ERRORS)
        os.environ["MF_HOST_IDENTITY"] = f"host-{self._rank}"  # ranks of one host also exchange descriptors
        config = bm.BmConfig(start_store=False, auto_ranking=False, rank_id=self._rank)
        config.init_timeout = config.create_timeout = config.operation_timeout = PATIENCE_S
        mf.check(bm.initialize(self._url, self._size, 0, config))
        self._pool = bm.create2(0, POOL_BYTES, max_dram_size=POOL_BYTES)
        mf.check(self._pool.join())
        return time.monotonic()
