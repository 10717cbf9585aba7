"""UCX between the hosts of a test, which have no RDMA devices: over its own TCP, as the setting for that says."""

from __future__ import annotations

from memfabric_hybrid import bm
from support.links import DEVICE

ENVIRONMENT = {"MF_UCX_DEVICES": f"tcp:{DEVICE}"}
UCX_ONLY = int(bm.BmDataOpType.HOST_RDMA)
MAPPED_OR_UCX = int(bm.BmDataOpType.HOST_RDMA | bm.BmDataOpType.SDMA)
