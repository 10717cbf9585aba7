"""The operation types of the documents and what each of them means on a machine without accelerators."""

from __future__ import annotations

from memfabric_hybrid.api.public_enum import PublicEnum, PublicFlag


class BmDataOpType(PublicFlag):
    """How data may move; bits, may be or-ed.

    SDMA and every DEVICE_* type mean "the best route there is". HOST_SHM means memory of this host only.
    HOST_TCP, HOST_RDMA (alias ROCE) and HOST_URMA restrict the route to that network.
    """

    SDMA = 1
    HOST_RDMA = 2
    ROCE = 2
    HOST_TCP = 4
    DEVICE_RDMA = 8
    HOST_URMA = 16
    HOST_SHM = 32
    DEVICE_URMA = 64
    DEVICE_UBOE = 128


class ShmDataOpType(PublicFlag):
    """How kernels and copies may reach a symmetric heap; bits, may be or-ed.

    MTE and SDMA mean memory that every rank of the host has mapped, and the best route to other hosts. RDMA (alias
    ROCE) allows RDMA; alone it means RDMA only, on one host as well.
    """

    MTE = 1
    SDMA = 2
    RDMA = 4
    ROCE = 4

    def as_bm(self) -> BmDataOpType:
        """The same in the words of Big Memory: MTE and SDMA are the best route there is, RDMA is HOST_RDMA."""
        mapped = BmDataOpType.SDMA if self & (ShmDataOpType.MTE | ShmDataOpType.SDMA) else BmDataOpType(0)
        return mapped | (BmDataOpType.HOST_RDMA if self & ShmDataOpType.RDMA else BmDataOpType(0))


class TransDataOpType(PublicFlag):
    """How a transfer may move its data; the same bits as `bm.BmDataOpType`."""

    SDMA = 1
    HOST_RDMA = 2
    HOST_TCP = 4
    DEVICE_RDMA = 8
    HOST_URMA = 16
    HOST_SHM = 32
    DEVICE_URMA = 64
    DEVICE_UBOE = 128


class TransferOpcode(PublicEnum):
    """Direction of a transfer, seen from the caller."""

    Read = 0
    READ = 0
    Write = 1
    WRITE = 1


ALL_BITS = 255
BEST_ROUTE = BmDataOpType.SDMA | BmDataOpType.DEVICE_RDMA | BmDataOpType.DEVICE_URMA | BmDataOpType.DEVICE_UBOE
MAPPED = BEST_ROUTE | BmDataOpType.HOST_SHM  # any of these allows mapped memory on one host
TCP = BEST_ROUTE | BmDataOpType.HOST_TCP  # any of these allows TCP to other hosts
RDMA = BEST_ROUTE | BmDataOpType.HOST_RDMA  # any of these allows UCX to other hosts
