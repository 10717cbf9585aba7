"""Memory for caches: taken as an address, used as an array, filled by a peer, copied piece by piece, given back."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

import memfabric_hybrid as mf
from memfabric_hybrid import offload

ROWS, ROW_BYTES = 1024, 1152


def rows_at(address: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * (ROWS * ROW_BYTES)).from_address(address)).reshape(ROWS, ROW_BYTES)


def take() -> int:
    address = offload.malloc(ROWS * ROW_BYTES)
    if address == 0:
        raise MemoryError(mf.get_last_err_msg())
    return address


if __name__ == "__main__":
    config = offload.OffloadConfig(alloc_size=64 << 20)
    mf.check(offload.initialize(config))
    cache = take()
    arrived = np.random.default_rng(3).integers(0, 256, (ROWS, ROW_BYTES), np.uint8)
    with mf.TransferEngine() as owner, mf.TransferEngine() as peer:
        for engine in (owner, peer):
            mf.check(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
        mf.check(owner.register_memory(cache, ROWS * ROW_BYTES))
        peer.write(owner.session_id, arrived, cache)  # it is mapped: a plain copy
        mf.check(owner.unregister_memory(cache))
    np.testing.assert_array_equal(rows_at(cache), arrived)
    print(f"a peer has filled {ROWS} rows")

    chosen = np.array([3, 1000, 17])
    packed = np.empty((len(chosen), ROW_BYTES), np.uint8)
    sources = cache + chosen * ROW_BYTES
    targets = packed.ctypes.data + np.arange(len(chosen)) * ROW_BYTES
    mf.check(offload.sparse_copy(sources, targets, np.full(len(chosen), ROW_BYTES), np.array([len(chosen)]), None))
    np.testing.assert_array_equal(packed, arrived[chosen])
    print(f"rows {', '.join(map(str, chosen))} are together now")

    mf.check(offload.free(cache))
    print(f"freed twice: {offload.free(cache)}, {mf.get_last_err_msg()}")
    offload.uninitialize()
