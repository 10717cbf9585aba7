"""What this process can offer of UCX to whoever may use it: finds devices and library, and opens both."""

from __future__ import annotations

import functools
from typing import NamedTuple

from memfabric_hybrid import _native, logs, settings
from memfabric_hybrid.errors import FabricError
from memfabric_hybrid.transports import rdma_devices, ucx_library
from memfabric_hybrid.transports.op_types import RDMA, BmDataOpType
from memfabric_hybrid.transports.ucx_ends import NOT_OFFERED, UcxEnd

log = logs.get(__name__)
NOT_ENCRYPTED = "UCX encrypts nothing, and data goes with TLS; where the network is trusted, MF_DATA_TLS=off allows it"


class UcxOffer(NamedTuple):
    """`context` is there unless the end says why not; while somebody has it, UCX stays as it is."""

    end: UcxEnd = NOT_OFFERED
    context: _native.UcxContext | None = None


def make(allowed: int, *, must_encrypt: bool = False, nic: str = "") -> UcxOffer:
    """For these operation types. UCX is loaded if they allow it and there is a device for it, and not otherwise.

    `nic` may name the RDMA devices; the setting comes first. A URL there names an address, not a device.

    InvalidParam for a setting that means nothing; any other obstacle is in the answer.
    """
    if not allowed & RDMA:
        return UcxOffer(UcxEnd(obstacle="data_op_type does not allow RDMA"))
    if must_encrypt:
        return UcxOffer(UcxEnd(obstacle=NOT_ENCRYPTED))
    said = settings.text(settings.UCX_DEVICES)
    found = rdma_devices.ports()
    devices = (
        rdma_devices.chosen(found, said, settings.UCX_DEVICES.names[0]) if said else rdma_devices.choose(found, nic)
    )
    if devices.obstacle:
        return UcxOffer(UcxEnd(obstacle=devices.obstacle))
    if devices.transports == rdma_devices.TCP and not allowed & BmDataOpType.HOST_RDMA:
        return UcxOffer(UcxEnd(obstacle="UCX over TCP is used where data_op_type says HOST_RDMA only"))
    library = ucx_library.load()
    if not library.loaded:
        return UcxOffer(UcxEnd(obstacle=library.obstacle))
    try:
        context = _native.UcxContext(devices.transports, devices.names)
    except FabricError as failure:
        return UcxOffer(UcxEnd(obstacle=str(failure)))
    if devices.transports == rdma_devices.TCP:
        _warn_of_tcp()
    return UcxOffer(UcxEnd(library.version, devices.transports, devices.names), context)


@functools.cache
def _warn_of_tcp() -> None:
    log.warning(
        "UCX over TCP is for trying UCX: it serves memory in software, and ends the process that serves if a peer dies "
        "in the middle of a copy; for work, use RDMA devices or HOST_TCP"
    )
