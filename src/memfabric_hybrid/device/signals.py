"""Signalling between ranks from kernels: atomics on aligned words, fences, and waiting for a word."""

from __future__ import annotations

import numpy as np
from numba import types

from memfabric_hybrid.device.compiled import compiled, inlined
from memfabric_hybrid.device.table import rank_is_gone
from memfabric_hybrid.device.words import adder, full_fence, loader, storer, swapper

EQ, NE, GT, GE, LT, LE = range(6)  # how `wait_until` compares the word with the value
FOREVER = 1 << 62  # looks; the departure of a rank ends it, too
_LOOKS_BEFORE_YIELD = 200
_LOOKS_BEFORE_SLEEP = 264  # beside a busy thread every yield costs a time slice, so there are few
_SLEEP_US = 50

_load_i32, _load_i64 = loader(32), loader(64)
_store_i32, _store_i64 = storer(32), storer(64)
_add_i32, _add_i64 = adder(32), adder(64)
_swap_i32, _swap_i64 = swapper(32), swapper(64)
_sched_yield = types.ExternalFunction("sched_yield", types.int32())
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))


@compiled
def fence() -> None:
    """Everything this thread stored before is seen by whoever sees what it stores after."""
    full_fence()


@compiled
def quiet() -> None:
    """All puts and gets of this thread are done. They are done when they return; this also orders them."""
    full_fence()


@compiled
def atomic_load_i32(address: int) -> int:
    """The word at the address."""
    return _load_i32(np.uint64(address))


@compiled
def atomic_load_i64(address: int) -> int:
    """The word at the address."""
    return _load_i64(np.uint64(address))


@compiled
def atomic_store_i32(address: int, value: int) -> None:
    """Stores the word."""
    _store_i32(np.uint64(address), np.int32(value))


@compiled
def atomic_store_i64(address: int, value: int) -> None:
    """Stores the word."""
    _store_i64(np.uint64(address), np.int64(value))


@compiled
def atomic_add_i32(address: int, value: int) -> int:
    """Adds to the word; what it was before."""
    return _add_i32(np.uint64(address), np.int32(value))


@compiled
def atomic_add_i64(address: int, value: int) -> int:
    """Adds to the word; what it was before."""
    return _add_i64(np.uint64(address), np.int64(value))


@compiled
def atomic_compare_swap_i32(address: int, expected: int, value: int) -> int:
    """Stores the value if the word is as expected; what it was before."""
    return _swap_i32(np.uint64(address), np.int32(expected), np.int32(value))


@compiled
def atomic_compare_swap_i64(address: int, expected: int, value: int) -> int:
    """Stores the value if the word is as expected; what it was before."""
    return _swap_i64(np.uint64(address), np.int64(expected), np.int64(value))


@inlined
def _let_others_run(looks: int) -> None:
    if looks >= _LOOKS_BEFORE_SLEEP:
        _usleep(np.uint32(_SLEEP_US))
    elif looks >= _LOOKS_BEFORE_YIELD:
        _sched_yield()


@inlined
def _holds(now: int, compare: int, value: int) -> bool:
    if compare == EQ:
        return now == value
    if compare == NE:
        return now != value
    if compare == GT:
        return now > value
    if compare == GE:
        return now >= value
    if compare == LT:
        return now < value
    return now <= value


@compiled
def wait_until_i32(address: int, compare: int, value: int, most: int) -> bool:
    """Looks until `word compare value` holds, `most` times at most; False = it never held, or a rank is gone.

    After some µs it lets others run, then it sleeps 50 µs between looks. The rank may be any of the object in which the
    word lies: a heap that has lost one is broken.
    """
    gone = False
    for looks in range(most):
        holds = _holds(_load_i32(np.uint64(address)), compare, value)
        if holds or gone:
            return holds
        gone = looks >= _LOOKS_BEFORE_SLEEP and rank_is_gone(address)  # one more look, then
        _let_others_run(looks)
    return False


@compiled
def wait_until_i64(address: int, compare: int, value: int, most: int) -> bool:
    """Looks until `word compare value` holds, `most` times at most; False = it never held, or a rank is gone.

    After some µs it lets others run, then it sleeps 50 µs between looks. The rank may be any of the object in which the
    word lies: a heap that has lost one is broken.
    """
    gone = False
    for looks in range(most):
        holds = _holds(_load_i64(np.uint64(address)), compare, value)
        if holds or gone:
            return holds
        gone = looks >= _LOOKS_BEFORE_SLEEP and rank_is_gone(address)  # one more look, then
        _let_others_run(looks)
    return False
