"""Arrays of kernels, as programs make them: strided, past the end of the heap, read-only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.ports import reserved_port
from support.programs import run_python

COMPILING_S = 300.0
PROGRAM = """
import json, sys
import numpy as np
from numba import njit
from numba.core.errors import TypingError
import memfabric_hybrid as mf
from memfabric_hybrid import device, shm

assert shm.initialize(sys.argv[1], 1, 0, 0, shm.ShmConfig()) == 0, mf.get_last_err_msg()
heap = shm.create(0, rank_size=1, rank_id=0, local_mem_size=2 << 20)
SIZE = heap.symmetric_size
memory = heap.array(0, SIZE // 8, np.float64)
found = {}

@njit(nogil=True)
def put(offset, source):
    return device.put(0, offset, source)

@njit(nogil=True)
def get(target, offset):
    return device.get(target, 0, offset)

@njit(nogil=True)
def size_of_array(rank, shape, offset):
    return device.array(rank, shape, np.float64, offset).size

@njit(nogil=True)
def sliced_inside(count):
    first = device.put(0, 0, np.arange(count)[::3] * 1.0)
    return first and device.put(0, 800, device.array(0, count, np.float64)[1:9:2])

@njit(nogil=True)
def copy(source):
    device.copy_ub2gm(device.address(0, 0), source, 40)

def refusal(kernel, *arguments):
    try:
        kernel(*arguments)
    except TypingError as error:
        return str(error)

numbers = np.arange(10.0)
square = np.arange(9.0).reshape(3, 3)

found["strided"] = [bool(put(0, numbers[::2])), memory[:5].tolist()]
found["backwards"] = [bool(put(0, numbers[::-1])), memory[:10].tolist()]
found["column"] = [bool(put(0, square[:, 1])), memory[:3].tolist()]
found["transposed"] = [bool(put(0, square.T)), memory[:9].tolist()]
found["inside"] = [bool(sliced_inside(30)), memory[:10].tolist(), memory[100:104].tolist()]

memory[:10] = np.arange(10)
target = np.full(10, -1.0)
found["get strided"] = [bool(get(target[::2], 0)), target.tolist()]
target = np.zeros((3, 3), order="F")
found["get transposed"] = [bool(get(target, 0)), target.tolist()]

memory[-1] = 7
found["put at the end"] = [bool(put(SIZE - 8, np.ones(1))), memory[-1]]
memory[-1] = 7
past = [(SIZE - 8, 2), (SIZE, 1), (-8, 1), (1 << 62, 1), (0, SIZE // 8 + 1)]
found["put past the end"] = [bool(put(offset, np.ones(count))) for offset, count in past] + [memory[-1]]
found["get past the end"] = [bool(get(np.ones(count), offset)) for offset, count in past]
found["put nothing"] = [bool(put(0, np.ones(0))), bool(put(SIZE, np.ones(0)))]

found["arrays inside"] = [int(size_of_array(0, *at)) for at in [(1, SIZE - 8), (SIZE // 8, 0), ((2, 3), 16), (0, 0)]]
outside = [(2, SIZE - 8), (SIZE // 8 + 1, 0), ((1 << 20, 1 << 20), 0), ((1 << 32, 1 << 32), 0), (-1, 0), ((2, -3), 0)]
outside.append((1, -8))
found["arrays outside"] = [int(size_of_array(0, *at)) for at in outside] + [int(size_of_array(1, 1, 0))]

frozen = np.ones(4)
frozen.flags.writeable = False
found["refused"] = [refusal(get, frozen, 0), refusal(copy, numbers[::2]), refusal(put, 0, 5)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    with reserved_port() as port:
        ended = run_python(PROGRAM, f"tcp://127.0.0.1:{port}", timeout_s=COMPILING_S)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("strided", [0, 2, 4, 6, 8]),
        ("backwards", [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ("column", [1, 4, 7]),
        ("transposed", [0, 3, 6, 1, 4, 7, 2, 5, 8]),
    ],
)
def test_put_writes_the_elements_in_their_order(found: dict[str, Any], name: str, memory: list[float]) -> None:
    assert found[name] == [True, memory]


def test_put_of_slices_made_in_a_kernel(found: dict[str, Any]) -> None:
    written = [3.0 * number for number in range(10)]
    assert found["inside"] == [True, written, written[1:9:2]]


def test_get_fills_the_elements_in_their_order(found: dict[str, Any]) -> None:
    assert found["get strided"] == [True, [0, -1, 1, -1, 2, -1, 3, -1, 4, -1]]
    assert found["get transposed"] == [True, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]]


def test_what_does_not_lie_inside_is_told_and_touches_nothing(found: dict[str, Any]) -> None:
    assert found["put at the end"] == [True, 1.0]
    assert found["put past the end"] == [False] * 5 + [7.0]
    assert found["get past the end"] == [False] * 5
    assert found["put nothing"] == [True, True]


def test_no_array_reaches_past_the_heap(found: dict[str, Any]) -> None:
    heap_bytes = 2 << 20
    assert found["arrays inside"] == [1, heap_bytes // 8, 6, 0]
    assert found["arrays outside"] == [0] * 8


def test_what_cannot_be_moved_does_not_compile(found: dict[str, Any]) -> None:
    read_only, strided, number = found["refused"]
    assert "read-only" in read_only
    assert "np.ascontiguousarray" in strided
    assert "moves numpy arrays" in number
