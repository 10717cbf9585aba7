"""The control plane as the C library (`libmf_smem.so`) calls it.

Importing this makes the process carry out the library's calls: it starts the interpreter if there is none, imports this
module, and calls functions by their names (those marked `c_call`), on the threads of the C program. Arguments are plain
values of the C interface; a function answers with a code, or with a tuple of a code and what the C function hands out.
"""

from __future__ import annotations

from memfabric_hybrid import _native
from memfabric_hybrid.capi_bridge import bm_calls, process_calls, shm_calls, trans_calls
from memfabric_hybrid.capi_bridge.answers import CALLS

__all__ = ["CALLS", "bm_calls", "process_calls", "shm_calls", "trans_calls"]

_native._serve_c_calls(CALLS)
