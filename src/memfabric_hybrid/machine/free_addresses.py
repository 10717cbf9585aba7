"""Addresses of this process that nothing is mapped at, as the kernel would choose them."""

from __future__ import annotations

import os

from memfabric_hybrid.errors import MallocFailed

_PROT_NONE = 0


def find(size_bytes: int, alignment: int) -> int:
    """Where so many bytes are free now. Nobody keeps them: another thread may be quicker than who reserves them."""
    import ctypes  # here: most programs let others choose their addresses
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    wanted_bytes = size_bytes + alignment
    found = libc.mmap(None, wanted_bytes, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise MallocFailed(
            f"{size_bytes} bytes of addresses are not free in this process: {os.strerror(ctypes.get_errno())}; ask for "
            "less, or check 'ulimit -v'"
        )
    libc.munmap(found, wanted_bytes)
    return -(-int(found) // alignment) * alignment
