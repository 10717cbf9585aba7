"""One rank of many, on any hosts, started by torchrun, mpirun or srun: each writes to its right-hand neighbour.

mpirun -n 4 python examples/09_launched.py
torchrun --nproc-per-node 4 examples/09_launched.py
srun -n 4 python examples/09_launched.py                 (MF_CONFIG_STORE_URL=tcp://<first node>:9000)
"""

from __future__ import annotations

import os

import memfabric_hybrid as mf
from memfabric_hybrid import shm

LAUNCHERS = (  # the variables that say rank and world size
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # mpirun of Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # mpirun of MPICH and its relatives
    ("SLURM_PROCID", "SLURM_NTASKS"),  # srun
)


def place() -> tuple[int, int]:
    """(rank, world size), as whoever started this process says."""
    for rank, world_size in LAUNCHERS:
        if rank in os.environ and world_size in os.environ:
            return int(os.environ[rank]), int(os.environ[world_size])
    return 0, 1


def store_url() -> str:
    """On the host of rank 0. torchrun says where that is."""
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    return os.environ.get("MF_CONFIG_STORE_URL", f"tcp://{host}:9000")


if __name__ == "__main__":
    rank, world_size = place()
    mf.check(shm.initialize(store_url(), world_size, rank, 0, shm.ShmConfig()))
    heap = shm.create(0, world_size, rank, 2 << 20)
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    heap.put(f"hello from rank {rank}".encode().ljust(64), right)
    mf.check(heap.barrier())
    received = heap.get(rank, out=bytearray(64))
    reached = "directly" if heap.reach(left) & shm.ShmDataOpType.MTE else "over the network"
    print(f"rank {rank} of {world_size} got: {received.decode().strip()} ({reached})", flush=True)
    mf.check(heap.barrier())
    mf.check(heap.destroy())
    shm.uninitialize()
