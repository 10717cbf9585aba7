"""Every public call with arguments that are right, and what kind each of them is: what is wrong follows from that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import bm, offload, shm
from support.certificates import private_key
from survey.scene import MIB, Scene

AUTO, HOST = bm.BmCopyType.AUTO, bm.BmMemType.HOST

# ---- kinds of arguments, and values that are of a wrong type for them ------------------------------------------------

NO_NUMBERS = (None, "7", b"7", 1.5, [], object())
WRONG_TYPES: dict[str, tuple[Any, ...]] = {
    "u64": (*NO_NUMBERS, -1, 1 << 64),
    "u32": (*NO_NUMBERS, -1, 1 << 32),
    "u64 or None": (*NO_NUMBERS[1:], -1, 1 << 64),
    "int": NO_NUMBERS,
    "int or None": NO_NUMBERS[1:],
    "integers": (None, "7", 1.5, [], object(), -1, 1 << 64, np.array([1.5])),
    "dtype": (7, "nonsense", object()),
    "flag": (None, "x", b"x", 1.5, [], object()),
    "code": (*NO_NUMBERS, True, False),
    "dtype or None": (7, "x", object()),
    "shape": (None, "7", b"7", 1.5, [1.5], ["7"], object()),
    "text": (None, 7, b"x", [], object()),
    "text or None": (7, b"x", [], object()),
    "function": (7, "x", object()),
    "function or None": (7, "x", object()),
    "bytes": (None, 7, "x", [1], object()),
    "bytes or None": (7, "x", object()),
    "numbers": (None, 7, "ab", [1.5], ["7"], [None], [-1], [1 << 64], np.array([1.5]), {1: 2}, object()),
    "numbers of any kind": ("ab", [1.5], ["7"], [None], [-1], [1 << 64], np.array([1.5]), {1: 2}, object()),
    "buffer": (None, 7, "x", [1], object(), np.array([None]), np.zeros(1, [("a", object)])),
    "ranks": (7, "ab", [1.5], ["7"], [None], [-1], [1 << 32], object()),
    "config": (None, 7, "x", {}, object()),
    "seconds or None": ("x", b"7", [], object()),
    "anything": (),  # accepted for programs that pass it
}


class Call(NamedTuple):
    """`arguments`: name → (a value that is right, kind)."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, tuple[Any, str]]


def calls(scene: Scene) -> list[Call]:
    return [
        *_top_level(scene), *_big_memory(scene), *_share_memory(scene), *_transfer(scene), *_streams(scene),
        *_offload(scene), *_configurations(),
    ]  # fmt: skip


def _top_level(scene: Scene) -> list[Call]:
    return [
        Call("initialize", mf.initialize, {"flags": (0, "u32")}),
        Call("set_log_level", mf.set_log_level, {"level": (2, "int")}),
        Call("set_extern_logger", mf.set_extern_logger, {"fn": (None, "function or None")}),
        Call("set_conf_store_tls", mf.set_conf_store_tls, {"enable": (False, "anything"), "tls_info": ("", "text")}),
        Call(
            "set_conf_store_tls_key",
            mf.set_conf_store_tls_key,
            {
                "tls_pk": (private_key(), "text"),
                "tls_pk_pw": ("", "text"),
                "py_decrypt_func": (None, "function or None"),
            },
        ),
        Call("check", mf.check, {"code": (0, "code")}),
        Call("create_config_store", mf.create_config_store, {"store_url": (scene.store_url, "text or None")}),
    ]


def _big_memory(scene: Scene) -> list[Call]:
    pool = scene.pool
    one = {"src_ptr": (scene.plain, "u64"), "dst_ptr": (scene.dram, "u64")}
    return [
        Call("bm.initialize", bm.initialize, {
            "store_url": (scene.store_url, "text"), "world_size": (4, "u32"), "device_id": (0, "u32"),
            "config": (bm.BmConfig(), "config"),
        }),
        Call("bm.update_store_url", bm.update_store_url, {"store_url": (scene.store_url, "text")}),
        Call("bm.create", bm.create, {
            "id": (9, "u32"), "local_dram_size": (MIB, "u64"), "local_hbm_size": (0, "u64"),
            "data_op_type": (1, "u32"), "flags": (0, "u64"),
        }),
        Call("bm.create2", bm.create2, {
            "id": (9, "u32"), "local_dram_size": (MIB, "u64"), "max_dram_size": (MIB, "u64"),
            "local_hbm_size": (0, "u64"), "max_hbm_size": (0, "u64"), "data_op_type": (1, "u32"),
            "enable_56bits_gva": (False, "anything"), "flags": (0, "u64"), "shm_fd": (-1, "int"), "tag": ("", "text"),
            "tag_op_info": ("", "text"),
        }),
        Call("BigMemory.join", pool.join, {"flags": (0, "u32")}),
        Call("BigMemory.leave", pool.leave, {"flags": (0, "u32")}),
        Call("BigMemory.local_mem_size", pool.local_mem_size, {"mem_type": (HOST, "u32")}),
        Call("BigMemory.peer_rank_ptr", pool.peer_rank_ptr, {"peer_rank": (0, "u32"), "mem_type": (HOST, "u32")}),
        Call("BigMemory.get_rank_id_by_gva", pool.get_rank_id_by_gva, {"gva": (scene.dram, "u64")}),
        Call("BigMemory.gva_to_va", pool.gva_to_va, {"gva": (scene.dram, "u64"), "mem_type": (1, "u32")}),
        Call("BigMemory.extend_local_mem", pool.extend_local_mem, {"mem_type": (HOST, "u32"), "size": (MIB, "u64")}),
        Call("BigMemory.register", pool.register, {"addr": (scene.plain, "u64"), "size": (64, "u64")}),
        Call("BigMemory.unregister", pool.unregister, {"addr": (scene.plain, "u64")}),
        Call("BigMemory.route", pool.route, {"rank": (0, "u32")}),
        Call("BigMemory.array", pool.array, {
            "rank": (0, "u32"), "shape": (8, "shape"), "dtype": ("u1", "dtype"), "offset": (0, "u64"),
            "mem_type": (HOST, "u32"),
        }),
        Call("BigMemory.set_group_event_handler", pool.set_group_event_handler, {
            "fn": (None, "function or None"),
        }),
        Call("BigMemory.put", pool.put, {
            "source": (b"x", "buffer"), "rank": (0, "u32"), "offset": (0, "u64"), "mem_type": (HOST, "u32"),
        }),
        Call("BigMemory.get", pool.get, {
            "rank": (0, "u32"), "offset": (0, "u64"), "mem_type": (HOST, "u32"), "out": (bytearray(1), "buffer"),
        }),
        Call("BigMemory.wait_for", pool.wait_for, {"ranks": ([0], "ranks"), "timeout": (0.0, "seconds or None")}),
        Call("BigMemory.copy_data", pool.copy_data, {
            **one, "size": (64, "u64"), "type": (AUTO, "u32"), "flags": (0, "u64"), "stream": (0, "u64"),
        }),
        Call("BigMemory.copy_data_batch", pool.copy_data_batch, {
            "src_addrs": ([scene.plain], "numbers"), "dst_addrs": ([scene.dram], "numbers"), "sizes": ([64], "numbers"),
            "count": (1, "u64"), "type": (AUTO, "u32"), "flags": (0, "u64"), "stream": (0, "u64"),
        }),
        Call("BigMemory.copy_data_2d", pool.copy_data_2d, {
            "src_ptr": one["src_ptr"], "spitch": (64, "u64"), "dst_ptr": one["dst_ptr"], "dpitch": (64, "u64"),
            "width": (8, "u64"), "height": (8, "u64"), "type": (AUTO, "u32"), "flags": (0, "u64"),
        }),
    ]  # fmt: skip


def _share_memory(scene: Scene) -> list[Call]:
    heap = scene.heap
    return [
        Call("shm.initialize", shm.initialize, {
            "store_url": (scene.store_url, "text"), "world_size": (1, "u32"), "rank_id": (0, "u32"),
            "device_id": (0, "u32"), "config": (shm.ShmConfig(), "config"),
        }),
        Call("shm.create", shm.create, {
            "id": (9, "u32"), "rank_size": (1, "u32"), "rank_id": (0, "u32"), "local_mem_size": (MIB, "u64"),
            "data_op_type": (1, "u32"), "flags": (0, "u64"),
        }),
        Call("ShareMemory.array", heap.array, {
            "rank": (0, "u32"), "shape": (8, "shape"), "dtype": ("u1", "dtype"), "offset": (0, "u64"),
        }),
        Call("ShareMemory.put", heap.put, {"source": (b"x", "buffer"), "rank": (0, "u32"), "offset": (0, "u64")}),
        Call("ShareMemory.get", heap.get, {
            "rank": (0, "u32"), "offset": (0, "u64"), "out": (bytearray(1), "buffer"),
        }),
        Call("ShareMemory.global_exit", heap.global_exit, {"status": (0, "int")}),
        Call("ShareMemory.all_gather", heap.all_gather, {"local_data": (b"x", "bytes")}),
        Call("ShareMemory.subgroup_barrier", heap.subgroup_barrier, {
            "key": ("k", "text"), "rank_size": (1, "u32"), "rank_id": (0, "u32"),
        }),
        Call("ShareMemory.subgroup_all_gather", heap.subgroup_all_gather, {
            "key": ("k", "text"), "rank_size": (1, "u32"), "rank_id": (0, "u32"), "data": (b"x", "bytes"),
        }),
        Call("ShareMemory.set_context", heap.set_context, {"context": (b"x", "bytes")}),
        Call("ShareMemory.topology_can_reach", heap.topology_can_reach, {
            "remote_rank": (0, "u32"), "reach_info": (0, "u32"),
        }),
        Call("ShareMemory.reach", heap.reach, {"remote_rank": (0, "u32")}),
        Call("ShareMemory.atomic_alloc_value", heap.atomic_alloc_value, {"limit": (4, "u32")}),
        Call("ShareMemory.atomic_release_value", heap.atomic_release_value, {"value": (0, "u32")}),
        Call("ShareMemory.register_exit", heap.register_exit, {"fn": (print, "function")}),
        Call("ShareMemory.destroy", heap.destroy, {"flags": (0, "u32")}),
    ]  # fmt: skip


def _transfer(scene: Scene) -> list[Call]:
    engine, session = scene.engine, (scene.peer.session_id, "text")
    one = {
        "dest_session": session, "buffer": (scene.plain, "u64"), "peer_buffer": (scene.there, "u64"),
        "length": (64, "u64"),
    }  # fmt: skip
    many = {
        "dest_session": session, "buffers": ([scene.plain], "numbers"), "peer_buffers": ([scene.there], "numbers"),
        "lengths": ([64], "numbers"),
    }  # fmt: skip
    flags, notify, stream = (
        {"flags": (0, "u64")},
        {"notify": (None, "bytes or None")},
        {"stream": (scene.stream, "u64")},
    )
    # One piece, many, or a buffer without a length: that the kinds do not go together is said of the first one.
    submitted = {**many, "lengths": ([64], "numbers of any kind")}
    of_a_buffer = {"dest_session": session, "address": (scene.there, "u64")}
    named = "TransferEngine."
    return [
        Call(named + "initialize", scene.unopened.initialize, {
            "store_url": (None, "text or None"), "session_id": ("127.0.0.1:0", "text"), "role": ("Decode", "text"),
            "device_id": (0, "u32"), "data_op_type": (1, "u32"), "store_server_role": ("Decode", "text"),
            "nic": ("", "text"),
        }),
        Call(named + "register_memory", engine.register_memory, {
            "buffer_addr": (scene.plain, "u64"), "capacity": (64, "u64"),
        }),
        Call(named + "batch_register_memory", engine.batch_register_memory, {
            "addrs": ([scene.plain], "numbers"), "capacities": ([64], "numbers"),
        }),
        Call(named + "unregister_memory", engine.unregister_memory, {"addr": (scene.arena, "u64")}),
        Call(named + "batch_unregister_memory", engine.batch_unregister_memory, {"addrs": ([scene.arena], "numbers")}),
        Call(named + "trans_malloc", engine.trans_malloc, {"capacity": (64, "u64")}),
        Call(named + "trans_free", engine.trans_free, {"addr": (scene.arena, "u64")}),
        Call(named + "register", engine.register, {"buffer": (scene.own, "buffer")}),
        Call(named + "unregister", engine.unregister, {"buffer": (scene.own, "buffer")}),
        Call(named + "send_probe", engine.send_probe, {"dest_session": session}),
        Call(named + "route", engine.route, {"dest_session": session}),
        Call(named + "notify", engine.notify, {"dest_session": session, "data": (b"x", "bytes")}),
        Call(named + "set_peer_down_callback", engine.set_peer_down_callback, {"fn": (None, "function or None")}),
        Call(named + "set_notification_callback", engine.set_notification_callback, {
            "fn": (None, "function or None"),
        }),
        Call(named + "transfer_sync_write", engine.transfer_sync_write, {**one, **flags, **notify}),
        Call(named + "transfer_sync_read", engine.transfer_sync_read, {**one, **flags}),
        Call(named + "batch_transfer_sync_write", engine.batch_transfer_sync_write, {**many, **flags, **notify}),
        Call(named + "batch_transfer_sync_read", engine.batch_transfer_sync_read, {**many, **flags}),
        Call(named + "transfer_async_write_submit", engine.transfer_async_write_submit, {
            **one, **stream, **flags, **notify,
        }),
        Call(named + "transfer_async_read_submit", engine.transfer_async_read_submit, {**one, **stream, **flags}),
        Call(named + "batch_transfer_async_write_submit", engine.batch_transfer_async_write_submit, {
            **many, **stream, **flags, **notify,
        }),
        Call(named + "batch_transfer_async_read_submit", engine.batch_transfer_async_read_submit, {
            **many, **stream, **flags,
        }),
        Call(named + "batch_transfer_write_with_quant", engine.batch_transfer_write_with_quant, {
            **many, "scale_buffers": ([scene.plain], "numbers"), "offset_buffers": ([], "numbers"),
            "unit_num": (1, "u32"), "input_type": (0, "u32"), "stream": (0, "u64"), **flags, **notify,
        }),
        Call(named + "submit_write", engine.submit_write, {**submitted, **notify}),
        Call(named + "submit_read", engine.submit_read, submitted),
        Call(named + "submit_write", engine.submit_write, {**of_a_buffer, "source": (b"x", "buffer"), **notify}),
        Call(named + "submit_read", engine.submit_read, {**of_a_buffer, "target": (bytearray(1), "buffer")}),
        Call(named + "write", engine.write, {
            "dest_session": session, "source": (b"x", "buffer"), "address": (scene.there, "u64"), **notify,
        }),
        Call(named + "read", engine.read, {
            "dest_session": session, "target": (bytearray(1), "buffer"), "address": (scene.there, "u64"),
        }),
    ]  # fmt: skip


def _streams(scene: Scene) -> list[Call]:
    ticket = scene.ticket
    return [
        Call("Ticket.wait", ticket.wait, {"timeout": (0.0, "seconds or None")}),
        Call("Ticket.result", ticket.result, {"timeout": (0.0, "seconds or None")}),
        Call("Stream.wait", scene.stream.wait, {"timeout": (0.0, "seconds or None")}),
        Call("Stream.notify_fd", scene.stream.notify_fd, {"sequence": (0, "u64 or None")}),
    ]


def _offload(scene: Scene) -> list[Call]:
    return [
        Call("offload.initialize", offload.initialize, {"config": (offload.OffloadConfig(), "config")}),
        Call("offload.malloc", offload.malloc, {"size": (4096, "u64"), "flags": (0, "u64")}),
        Call("offload.free", offload.free, {"ptr": (scene.block, "u64"), "flags": (0, "u64")}),
        Call("offload.get_dva", offload.get_dva, {"ptr": (scene.block, "u64")}),
        Call("offload.empty", offload.empty, {"sizes": (4, "shape"), "dtype": (None, "dtype or None")}),
        Call("offload.sparse_copy", offload.sparse_copy, {
            "src_ptrs": (scene.numbers, "integers"), "dst_ptrs": (scene.numbers, "integers"),
            "len_ptrs": (scene.numbers, "integers"), "size_ptr": (scene.numbers, "integers"),
            "device": (0, "int or None"),
        }),
    ]  # fmt: skip


def _configurations() -> list[Call]:
    """What they are made with, and what is set afterwards."""
    times = {name: (1, "u32") for name in ("init_timeout", "create_timeout", "operation_timeout", "flags")}
    offloaded = ("device_id", "world_size", "rank_id", "local_world_size", "flags", "init_timeout")
    flags = ("start_store", "start_store_only", "dynamic_world_size", "unified_address_space", "auto_ranking")
    return [
        Call("bm.BmConfig", bm.BmConfig, {**times, "rank_id": (0, "u32"), **{name: (True, "flag") for name in flags}}),
        Call("BmConfig.set_nic", bm.BmConfig().set_nic, {"nic": ("", "text")}),
        Call("shm.ShmConfig", shm.ShmConfig, {**times, "start_store": (True, "flag")}),
        Call("offload.OffloadConfig", offload.OffloadConfig, {
            **{name: (1, "u32") for name in offloaded}, "reserve_size": (1, "u64"), "alloc_size": (1, "u64"),
            "scene": (0, "int"), "store_url": ("", "text"),
        }),
    ]  # fmt: skip


def subjects(scene: Scene) -> dict[str, object]:
    """Where public calls are found."""
    return {
        "": mf, "bm.": bm, "shm.": shm, "BigMemory.": scene.pool, "ShareMemory.": scene.heap,
        "TransferEngine.": scene.engine, "Stream.": scene.stream, "offload.": offload,
        "Ticket.": scene.ticket,
    }  # fmt: skip


WITHOUT_ARGUMENTS = {
    "uninitialize", "get_last_err_msg", "get_and_clear_last_err_msg", "get_include_path", "get_lib_path",
    "get_cluster_status",
    "bm.bm_rank_id", "BigMemory.destroy", "BigMemory.wait", "ShareMemory.barrier", "ShareMemory.quiet",
    "ShareMemory.query_support_data_operation", "TransferEngine.destroy", "TransferEngine.unInitialize",
    "TransferEngine.get_rpc_port", "TransferEngine.notifications", "TransferEngine.notified", "Stream.first_failure",
    "Stream.close",
    # They end what the survey needs, or cannot fail: their arguments are those of others.
    "offload.uninitialize", "offload.group_pack_copy", "offload.kv_exchange_copy", "offload.entry_gather",
    "offload.register_entry_table", "bm.uninitialize", "shm.uninitialize", "Ticket.cancel", "Ticket.finished",
}  # fmt: skip
