"""Values of the right type that mean nothing: the sentence names the value and the limit, and nothing has changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from memfabric_hybrid import bm
from survey import calls
from survey.attempts import Expected, complaint
from survey.scene import MIB, Scene

# Call, what is wrong, words of the sentence; and what it does, if that is not -2000.
Row = tuple[str, dict[str, Any], tuple[str, ...]] | tuple[str, dict[str, Any], tuple[str, ...], Expected]
NO_RANK = 0xFFFFFFFF
NOT_IN_ORDER = (np.arange(10)[::2], np.asfortranarray(np.eye(3)))
UNMAPPED = 0x1000
NOBODY = "127.0.0.1:1"


def big_memory(scene: Scene) -> list[Row]:
    beyond = scene.dram + 4 * MIB  # of what is allocated
    return [
        ("set_log_level", {"level": 9}, ("9", "0..5")),
        ("check", {"code": 4096}, ("code", "4096", "0 or a negative")),
        ("create_config_store", {"store_url": "nonsense"}, ("nonsense", "tcp://")),
        ("create_config_store", {"store_url": None}, ("store_url", "None")),
        ("bm.update_store_url", {"store_url": "nonsense"}, ("nonsense", "tcp://")),
        ("bm.create", {"id": 0}, ("0",), RuntimeError),
        ("bm.create", {"local_dram_size": 0}, ("dram_size", "0"), RuntimeError),
        ("bm.create", {"local_dram_size": 1 << 60}, ("dram_size", str(1 << 60)), RuntimeError),
        ("bm.create", {"data_op_type": 1 << 10}, ("data_op_type", "0x400"), RuntimeError),
        ("bm.create2", {"local_dram_size": 4 * MIB}, ("local_dram_size", "max_dram_size"), RuntimeError),
        ("bm.create2", {"tag": "no spaces"}, ("tag", "no spaces"), RuntimeError),
        ("bm.create2", {"tag_op_info": "a-b"}, ("tag_op_info", "a-b"), RuntimeError),
        ("bm.create2", {"flags": 1 << 8, "shm_fd": 9999}, ("shm_fd", "9999"), RuntimeError),
        ("BigMemory.local_mem_size", {"mem_type": 9}, ("mem_type", "9"), 0),
        ("BigMemory.get_rank_id_by_gva", {"gva": 1}, ("0x1",), NO_RANK),
        ("BigMemory.peer_rank_ptr", {"peer_rank": 4}, ("4", "0..3"), 0),
        ("BigMemory.gva_to_va", {"gva": 1}, ("0x1",), 0),
        ("BigMemory.extend_local_mem", {"size": 0}, ("size", "0")),
        ("BigMemory.extend_local_mem", {"size": 64 * MIB}, (str(8 * MIB),)),
        ("BigMemory.register", {"addr": 0}, ("addr", "0x0")),
        ("BigMemory.register", {"size": 0}, ("size", "0")),
        ("BigMemory.unregister", {"addr": UNMAPPED}, ("0x1000",), -2007),
        ("BigMemory.route", {"rank": 4}, ("4", "0..3")),
        ("BigMemory.route", {"rank": 1}, ("rank 1",), -2014),
        ("BigMemory.array", {"rank": 4}, ("4", "0..3")),
        ("BigMemory.array", {"rank": 1}, ("bm object 0", "rank 1", "has not joined"), -2014),
        ("BigMemory.array", {"shape": 5 * MIB}, ("bm object 0", str(5 * MIB), str(4 * MIB))),
        ("BigMemory.array", {"shape": -1}, ("-1",)),
        ("BigMemory.array", {"dtype": object}, ("dtype", "object")),
        ("BigMemory.put", {"rank": 4}, ("bm object 0", "4", "0..3")),
        ("BigMemory.put", {"offset": 4 * MIB}, (str(4 * MIB),)),
        ("BigMemory.put", {"source": np.arange(10)[::2]}, ("source", "contiguous")),
        ("BigMemory.put", {"source": np.asfortranarray(np.eye(3))[:, ::2]}, ("source", "contiguous")),
        ("BigMemory.put", {"source": np.zeros(0)}, ("source", "0 bytes")),
        ("BigMemory.put", {"source": np.array([None])}, ("source", "object"), TypeError),
        ("BigMemory.put", {"mem_type": 9}, ("mem_type", "9", "0..3")),
        ("BigMemory.get", {"out": np.eye(4)[1:, 1:]}, ("out", "contiguous")),
        ("BigMemory.get", {"offset": 1 << 63}, (str(1 << 63), str(4 * MIB))),
        ("BigMemory.get", {"out": b"x"}, ("out", "read-only")),
        ("BigMemory.wait_for", {"ranks": [4]}, ("4", "0..3")),
        ("BigMemory.wait_for", {"ranks": [1]}, ("bm object 0", "1 of 1", "0 s: 1"), -2004),
        ("BigMemory.copy_data", {"size": 0}, ("size", "0")),
        ("BigMemory.copy_data", {"type": 99}, ("type", "99")),
        ("BigMemory.copy_data", {"dst_ptr": beyond}, (f"{beyond:#x}",)),
        ("BigMemory.copy_data", {"dst_ptr": 0}, ("0x0",)),
        ("BigMemory.copy_data", {"size": (1 << 64) - 1}, (str((1 << 64) - 1),)),
        ("BigMemory.copy_data", {"type": bm.BmCopyType.G2L}, ("source", "global")),
        ("BigMemory.copy_data", {"src_ptr": UNMAPPED}, ("0x1000",)),
        ("BigMemory.copy_data", {"flags": 4, "stream": 12345}, ("12345", "stream")),
        ("BigMemory.copy_data", {"flags": 4, "stream": scene.closed_stream}, (str(int(scene.closed_stream)), "stream")),
        ("BigMemory.copy_data_batch", {"count": 2}, ("2", "1")),
        ("BigMemory.copy_data_batch", {"sizes": [0]}, ("size", "0")),
        ("BigMemory.copy_data_batch", {"dst_addrs": [beyond]}, (f"{beyond:#x}", "piece 0")),
        ("BigMemory.copy_data_batch", {"src_addrs": [1, 2]}, ("2 sources", "1 targets")),
        ("BigMemory.copy_data_batch", {"count": 0}, ("count", "0", "1048576")),
        ("BigMemory.copy_data_batch", {"sizes": np.array([-1])}, ("piece 0",)),
        ("BigMemory.copy_data_2d", {"height": 1 << 40}, (f"{scene.plain:#x}", str(64 * ((1 << 40) - 1) + 8))),
        ("BigMemory.copy_data_2d", {"spitch": 4}, ("spitch", "4", "8")),
        ("BigMemory.copy_data_2d", {"height": 0}, ("height", "0")),
    ]  # fmt: skip


def share_memory(scene: Scene) -> list[Row]:
    return [
        ("shm.create", {"id": 0}, ("0",), RuntimeError),
        ("shm.create", {"rank_size": 0}, ("rank_size", "0"), RuntimeError),
        ("shm.create", {"rank_id": 5}, ("rank_id", "5"), RuntimeError),
        ("shm.create", {"local_mem_size": 0}, ("local_mem_size", "0"), RuntimeError),
        ("ShareMemory.array", {"rank": 1}, ("rank", "1")),
        ("ShareMemory.array", {"shape": 3 * MIB}, (str(3 * MIB), str(2 * MIB))),
        ("ShareMemory.put", {"offset": 2 * MIB}, (str(2 * MIB),)),
        ("ShareMemory.array", {"dtype": object}, ("dtype", "object")),
        ("ShareMemory.put", {"rank": 1}, ("shm object 0", "rank", "1")),
        *[("ShareMemory.put", {"source": buffer}, ("source", "C-contiguous")) for buffer in NOT_IN_ORDER],
        *[("ShareMemory.get", {"out": buffer}, ("out", "C-contiguous")) for buffer in NOT_IN_ORDER],
        ("ShareMemory.get", {"out": b"x"}, ("out", "read-only")),
        ("ShareMemory.all_gather", {"local_data": b""}, ("0", "65536"), RuntimeError),
        ("ShareMemory.all_gather", {"local_data": bytes(70000)}, ("70000", "65536"), RuntimeError),
        ("ShareMemory.subgroup_barrier", {"rank_id": 1}, ("rank_id", "1")),
        ("ShareMemory.subgroup_barrier", {"rank_size": 2}, ("2",)),
        ("ShareMemory.set_context", {"context": b""}, ("0 bytes", "65536")),
        ("ShareMemory.topology_can_reach", {"remote_rank": 1}, ("1",)),
        ("ShareMemory.atomic_alloc_value", {"limit": 0}, ("limit", "0")),
        ("ShareMemory.atomic_release_value", {"value": 77}, ("77",), -2007),
    ]  # fmt: skip


def transfer(scene: Scene) -> list[Row]:
    one = [f"TransferEngine.transfer_sync_{direction}" for direction in ("write", "read")]
    many = [f"TransferEngine.batch_transfer_sync_{direction}" for direction in ("write", "read")]
    quantised = "TransferEngine.batch_transfer_write_with_quant"
    return [
        ("TransferEngine.initialize", {"session_id": ""}, ("session_id",)),
        ("TransferEngine.initialize", {"session_id": "127.0.0.1;5001"}, ("127.0.0.1;5001",)),
        ("TransferEngine.initialize", {"role": "Cook"}, ("role", "Cook", "Prefill")),
        ("TransferEngine.initialize", {"data_op_type": 0}, ("data_op_type", "0x0")),
        ("TransferEngine.register_memory", {"buffer_addr": 0}, ("address", "0")),
        ("TransferEngine.register_memory", {"capacity": 0}, ("size", "0")),
        ("TransferEngine.register_memory", {"buffer_addr": UNMAPPED}, ("0x1000", "64")),
        ("TransferEngine.batch_register_memory", {"capacities": [64, 64]}, ("1", "2")),
        ("TransferEngine.unregister_memory", {"addr": UNMAPPED}, ("0x1000",), -2007),
        ("TransferEngine.batch_unregister_memory", {"addrs": [scene.arena, UNMAPPED]}, ("0x1000",), -2007),
        ("TransferEngine.trans_malloc", {"capacity": 0}, ("capacity", "0", "1"), 0),
        ("TransferEngine.trans_malloc", {"capacity": 1 << 60}, (str(1 << 60),), 0),
        ("TransferEngine.trans_free", {"addr": UNMAPPED}, ("0x1000",), -2007),
        ("TransferEngine.register", {"buffer": b"x"}, ("buffer", "read-only")),
        ("TransferEngine.send_probe", {"dest_session": NOBODY}, (NOBODY,), -2014),
        ("TransferEngine.send_probe", {"dest_session": "nonsense"}, ("nonsense",)),
        ("TransferEngine.notify", {"data": bytes(40000)}, ("40000", "32768")),
        *[(name, {"length": 0}, ("length", "0")) for name in one],
        *[(name, {"length": 8192}, ("8192", f"{scene.there:#x}")) for name in one],
        *[(name, {"buffer": 0}, ("buffer", "0")) for name in one],
        *[(name, {"dest_session": NOBODY}, (NOBODY,), -2014) for name in one],
        *[(name, {"lengths": [64, 64]}, ("1", "2")) for name in many],
        *[(name, {"peer_buffers": [UNMAPPED]}, ("0x1000",)) for name in many],
        ("TransferEngine.transfer_async_write_submit", {"stream": 0}, ("stream", "0")),
        ("TransferEngine.transfer_async_write_submit", {"stream": 12345}, ("12345",)),
        (quantised, {"unit_num": 0}, ("unit_num", "0")),
        (quantised, {"unit_num": 3}, ("3",)),
        (quantised, {"input_type": 7}, ("input_type", "7")),
        ("TransferEngine.write", {"address": UNMAPPED}, ("0x1000",)),
        *[("TransferEngine.write", {"source": buffer}, ("source", "C-contiguous")) for buffer in NOT_IN_ORDER],
        *[("TransferEngine.read", {"target": buffer}, ("target", "C-contiguous")) for buffer in NOT_IN_ORDER],
        ("TransferEngine.register", {"buffer": NOT_IN_ORDER[0]}, ("buffer", "C-contiguous")),
        ("TransferEngine.register", {"buffer": np.zeros(0)}, ("buffer", "0 bytes")),
        ("TransferEngine.read", {"target": b"x"}, ("target", "read-only")),
        ("Stream.wait", {"timeout": -1.0}, ("timeout", "-1", "0 or more"), ValueError),
    ]  # fmt: skip


def offloaded(scene: Scene) -> list[Row]:
    reserved = 1 << 30  # 4 MiB, rounded up
    return [
        ("offload.malloc", {"size": 0}, ("size", "0"), 0),
        ("offload.malloc", {"size": reserved + 1}, (str(reserved + 1), str(reserved)), 0),
        ("offload.free", {"ptr": UNMAPPED}, ("0x1000",), -2007),
        ("offload.free", {"ptr": scene.block + 1}, (f"{scene.block + 1:#x}",), -2007),
        ("offload.get_dva", {"ptr": UNMAPPED}, ("0x1000",), 0),
        ("offload.empty", {"sizes": [-1]}, ("-1",), RuntimeError),
        ("offload.sparse_copy", {"size_ptr": np.array([1 << 21])}, ("size_ptr", str(1 << 21), "1048576")),
    ]


def test_wrong_values(one_of_everything: Scene) -> None:
    known = {call.name: call for call in calls.calls(one_of_everything)}
    rows = [row for kind in (big_memory, share_memory, transfer, offloaded) for row in kind(one_of_everything)]
    before = one_of_everything.state()
    complaints = []
    for name, wrong, words, *others in rows:
        complaints.append(complaint(known[name], wrong, *words, expected=others[0] if others else -2000))
        if one_of_everything.state() != before:
            complaints.append(f"{name}({wrong}) has changed something")
            before = one_of_everything.state()
    assert not any(complaints), "\n" + "\n".join(filter(None, complaints))
