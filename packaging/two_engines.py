"""Two engines of one process write to each other: shows that the wheel's native half loads and moves bytes."""

from __future__ import annotations

import platform

import numpy as np

import memfabric_hybrid as mf

with mf.TransferEngine() as decode, mf.TransferEngine() as prefill:
    mf.check(decode.initialize(None, "127.0.0.1:0", "Decode", 0))
    mf.check(prefill.initialize(None, "127.0.0.1:0", "Prefill", 0))
    cache = np.zeros(1 << 20, np.uint8)
    mf.check(decode.register(cache))
    prefill.write(decode.session_id, np.full(1 << 20, 7, np.uint8), cache.ctypes.data)
    np.testing.assert_array_equal(cache, 7)
print(f"Python {platform.python_version()} on {platform.machine()}: two engines have moved a mebibyte")
