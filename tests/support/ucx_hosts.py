"""UCX between the hosts of a test, which have no RDMA devices: over its own TCP, as the setting for that says.

It is that of the Python package: Debian's, built with assertions, aborts now and then when a worker goes (see
decision 0013).
"""

from __future__ import annotations

from importlib.metadata import files

from memfabric_hybrid import bm
from support.links import DEVICE


def _library() -> str:
    return next(str(file.locate()) for file in files("libucx-cu12") or () if file.name == "libucp.so.0")


LIBRARY = {"MF_UCX_LIBRARY": _library(), "MF_DATA_TLS": "off"}  # also where the store has TLS: UCX encrypts nothing
ENVIRONMENT = {"MF_UCX_DEVICES": f"tcp:{DEVICE}", **LIBRARY}
LOOPBACK = {"MF_UCX_DEVICES": "tcp:lo", **LIBRARY}
UCX_ONLY = int(bm.BmDataOpType.HOST_RDMA)
MAPPED_OR_UCX = int(bm.BmDataOpType.HOST_RDMA | bm.BmDataOpType.SDMA)
