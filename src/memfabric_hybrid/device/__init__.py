"""Share Memory from inside Numba kernels: functions for `@njit`, without a Python call.

    from numba import njit
    from memfabric_hybrid import device

    @njit(nogil=True)
    def shift_to_the_right(count):
        rank, size = device.rank(), device.rank_size()
        mine = device.array(rank, count, np.float32)
        if not device.put((rank + 1) % size, 1 << 20, mine):  # at offset 1 MiB of the neighbour's memory
            return False                                      # the heap is too small for that
        device.quiet()
        device.atomic_add_i64(device.address((rank + 1) % size, 0), 1)
        return device.wait_until_i64(device.address(rank, 0), device.GE, 1, device.FOREVER)

Every function takes the object's id last, 0 unless given. C++ kernels: `smem/device/smem_shm_aicore_base_api.h` in
`mf.get_include_path()`, with the same meanings. Use `nogil=True`: other threads of the program can run meanwhile.

`put` and `get` return False, and move nothing, for what does not all lie in the memory of that rank; strided arrays are
honoured. `address()` and `array()` give 0 and an empty array then. Storing to such an address, or into an empty array,
is a crash, as in C.

Ranks on other hosts (`is_far`) are reached by `put`, `get`, `copy_ub2gm` and `copy_gm2ub`, which return when the bytes
are there, and False if the host cannot be reached. Loads, stores and atomics are for ranks of this host.

Needs Numba: `pip install memfabric-hybrid[kernels]`.
"""

from __future__ import annotations

try:
    import numba  # noqa: F401
except ImportError as missing:
    raise ImportError("kernels need Numba: pip install memfabric-hybrid[kernels]") from missing

from memfabric_hybrid import _native
from memfabric_hybrid.device.copies import array, copy_gm2ub, copy_ub2gm, get, put
from memfabric_hybrid.device.signals import (
    EQ,
    FOREVER,
    GE,
    GT,
    LE,
    LT,
    NE,
    atomic_add_i32,
    atomic_add_i64,
    atomic_compare_swap_i32,
    atomic_compare_swap_i64,
    atomic_load_i32,
    atomic_load_i64,
    atomic_store_i32,
    atomic_store_i64,
    fence,
    quiet,
    wait_until_i32,
    wait_until_i64,
)
from memfabric_hybrid.device.table import (
    NO_RANK,
    address,
    context_address,
    context_size,
    gva,
    is_far,
    rank,
    rank_size,
    symmetric_size,
)

__all__ = [
    "EQ",
    "FOREVER",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "NO_RANK",
    "address",
    "array",
    "atomic_add_i32",
    "atomic_add_i64",
    "atomic_compare_swap_i32",
    "atomic_compare_swap_i64",
    "atomic_load_i32",
    "atomic_load_i64",
    "atomic_store_i32",
    "atomic_store_i64",
    "context_address",
    "context_size",
    "copy_gm2ub",
    "copy_ub2gm",
    "fence",
    "get",
    "gva",
    "is_far",
    "put",
    "quiet",
    "rank",
    "rank_size",
    "symmetric_size",
    "wait_until_i32",
    "wait_until_i64",
]

_native.device_table_open()  # a kernel that runs before an object exists finds an empty table, not a fault
