"""Right arguments at the wrong place: objects that have ended or not begun, memory of other objects, and a process that
has none of it because it was forked. The sentence says which object it is and what it lacks, and nothing has changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from support.forked_child import run_in_child
from support.programs import run_python
from survey import calls
from survey.attempts import INSIDE, Expected, complaint
from survey.calls import Call
from survey.scene import Scene

# They only note what a later call will use.
NOTED = {"set_group_event_handler", "set_peer_down_callback", "set_notification_callback", "register_exit"}
GETTERS: dict[str, Expected] = {
    "BigMemory.local_mem_size": 0, "BigMemory.peer_rank_ptr": 0, "BigMemory.gva_to_va": 0,
    "BigMemory.get_rank_id_by_gva": 0xFFFFFFFF, "ShareMemory.reach": 0, "ShareMemory.all_gather": RuntimeError,
    "ShareMemory.subgroup_all_gather": RuntimeError, "TransferEngine.trans_malloc": 0,
}  # fmt: skip


def of(scene: Scene, *subjects: str) -> list[Call]:
    """The calls of these classes."""
    return [call for call in calls.calls(scene) if call.name.partition(".")[0] in subjects]


def on(subject: object, call: Call) -> Call:
    """The same call on another object."""
    return call._replace(function=getattr(subject, call.name.rpartition(".")[2]))


def complaints(rows: Iterable[tuple[Call, tuple[str, ...], Expected]]) -> list[str]:
    found = [complaint(call, {}, *words, expected=GETTERS.get(call.name, code)) for call, words, code in rows]
    return [each for each in found if each]


def shown(found: list[str]) -> str:
    return "\n" + "\n".join(found)


def test_closed_objects(one_of_everything: Scene) -> None:
    """Every method of an object that has ended says which one it is, and that it has ended."""
    before = one_of_everything.state()
    closed = {
        "BigMemory": (one_of_everything.closed_pool, "bm object 1"),
        "ShareMemory": (one_of_everything.closed_heap, "shm object 1"),
    }
    found = complaints(
        (on(ended, call), (name, "closed"), -2000)
        for subject, (ended, name) in closed.items()
        for call in of(one_of_everything, subject)
        if call.name.partition(".")[2] not in NOTED
    )
    assert not found, shown(found)
    assert one_of_everything.state() == before


@pytest.mark.parametrize("which", ["unopened", "destroyed"])
def test_engines_that_are_not_initialised(one_of_everything: Scene, which: str) -> None:
    """Not yet, or not any more: whoever wants to reach a peer is told to initialise it."""
    engine = getattr(one_of_everything, which)
    found = complaints(
        (on(engine, call), ("initialize()",), -2008)
        for call in of(one_of_everything, "TransferEngine")
        if "dest_session" in call.arguments
    )
    assert not found, shown(found)


def test_a_closed_stream_takes_nothing(one_of_everything: Scene) -> None:
    before = one_of_everything.state()
    handle = int(one_of_everything.closed_stream)
    known = {call.name: call for call in calls.calls(one_of_everything)}
    for name, call in known.items():
        if "stream" in call.arguments:
            wrong = {"stream": handle} | ({"flags": 4} if name.startswith("BigMemory.") else {})
            assert complaint(call, wrong, str(handle), "stream", expected=-2000) == ""
    assert one_of_everything.state() == before


def test_memory_of_another_object(one_of_everything: Scene) -> None:
    """An address of one object is no address of another one."""
    known = {call.name: call for call in calls.calls(one_of_everything)}
    before = one_of_everything.state()
    heap, peers, own = one_of_everything.heap.gva, one_of_everything.there, one_of_everything.arena
    copy = known["BigMemory.copy_data"]
    for copy_type in (bm.BmCopyType.H2G, bm.BmCopyType.L2G, bm.BmCopyType.L2GH):
        assert complaint(copy, {"dst_ptr": heap, "type": copy_type}, f"{heap:#x}", expected=-2000) == ""
    assert complaint(known["BigMemory.get_rank_id_by_gva"], {"gva": heap}, f"{heap:#x}", expected=0xFFFFFFFF) == ""
    assert complaint(known["BigMemory.gva_to_va"], {"gva": heap}, f"{heap:#x}", expected=0) == ""
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("TransferEngine.unregister_memory", {"addr": peers}, f"{peers:#x}"),
        ("TransferEngine.trans_free", {"addr": peers}, f"{peers:#x}"),
        ("TransferEngine.unregister", {"buffer": one_of_everything.peers}, f"{peers:#x}"),
        ("offload.free", {"ptr": own}, f"{own:#x}"),
    ]
    found = [complaint(known[name], wrong, place, expected=-2007) for name, wrong, place in rows]
    peer = one_of_everything.peer  # of engine's memory, which its peer has not
    found.append(complaint(on(peer, known["TransferEngine.trans_free"]), {}, f"{own:#x}", expected=-2007))
    assert not any(found), shown(found)
    assert one_of_everything.state() == before


TOO_EARLY = """
import sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm, offload, shm

def said(call):
    mf.get_and_clear_last_err_msg()
    try:
        result = call()
    except (RuntimeError, mf.errors.FabricError) as error:
        return type(error).__name__, str(error)
    return result, mf.get_last_err_msg()

mf.set_log_level(5)
for call in (
    lambda: bm.create(0, 1 << 20),
    lambda: bm.create2(0, 1 << 20, 1 << 20),
    lambda: bm.update_store_url("tcp://127.0.0.1:9000"),
    lambda: shm.create(0, 1, 0, 1 << 20),
    lambda: offload.malloc(4096),
    lambda: offload.free(4096),
    lambda: offload.get_dva(4096),
    lambda: offload.empty([4]),
    lambda: offload.sparse_copy(4096, 4096, 4096, 4096, 0),
):
    print(*said(call), sep="; ")
"""


def test_calls_that_come_too_early() -> None:
    """Nothing is initialised yet: that is what they say, whatever else may be wrong."""
    done = run_python(TOO_EARLY)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    results = [line.partition("; ")[0] for line in lines]
    failed = "NotInit"
    assert results == [failed, failed, "-2008", failed, "0", "-2008", "0", failed, "-2008"]
    assert [line for line in lines if "initialize()" not in line] == []
    assert not [line for line in lines if INSIDE.search(line)]


def test_a_forked_child_has_nothing_of_it(one_of_everything: Scene) -> None:
    """Another process with the same objects in its hands: all of them say that they are its parent's."""
    before = one_of_everything.state()
    kept = of(one_of_everything, "BigMemory", "ShareMemory", "TransferEngine")
    rows: list[tuple[Call, tuple[str, ...], Expected]] = [
        (call, ("forked",), -2008)
        for call in kept
        if call.name.partition(".")[2] not in NOTED and call.name != "TransferEngine.initialize"
    ]

    def in_child() -> None:
        mf.set_log_level(5)
        found = complaints(rows)
        assert not found, shown(found)

    run_in_child(in_child, _tell(2))
    assert one_of_everything.state() == before


def _tell(fd: int) -> Callable[[str], object]:
    return lambda text: os.write(fd, text.encode())
