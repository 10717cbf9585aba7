"""The documented interface of Transfer, name by name: signatures, defaults, results. Behaviour is in tests/transfer."""

from __future__ import annotations

import inspect

import pytest

import memfabric_hybrid as mf

CALLS = {
    "transfer_sync_write": "(dest_session, buffer, peer_buffer, length, flags=0, notify=None)",
    "transfer_sync_read": "(dest_session, buffer, peer_buffer, length, flags=0)",
    "batch_transfer_sync_write": "(dest_session, buffers, peer_buffers, lengths, flags=0, notify=None)",
    "batch_transfer_sync_read": "(dest_session, buffers, peer_buffers, lengths, flags=0)",
    "transfer_async_write_submit": "(dest_session, buffer, peer_buffer, length, stream, flags=0, notify=None)",
    "transfer_async_read_submit": "(dest_session, buffer, peer_buffer, length, stream, flags=0)",
    "batch_transfer_async_write_submit": "(dest_session, buffers, peer_buffers, lengths, stream, flags=0, notify=None)",
    "batch_transfer_async_read_submit": "(dest_session, buffers, peer_buffers, lengths, stream, flags=0)",
    "register_memory": "(buffer_addr, capacity)",
    "batch_register_memory": "(addrs, capacities)",
    "unregister_memory": "(addr)",
    "batch_unregister_memory": "(addrs)",
    "trans_malloc": "(capacity)",
    "trans_free": "(addr)",
    "batch_transfer_write_with_quant": "(dest_session, buffers, peer_buffers, lengths, scale_buffers, offset_buffers, "
    "unit_num, input_type=0, stream=0, flags=0, notify=None)",
    "notify": "(dest_session, data)",
    "send_probe": "(dest_session)",
    "get_rpc_port": "()",
}
TRANSFERS = [name for name in CALLS if "transfer" in name or name == "notify"]


@pytest.fixture
def engine() -> mf.TransferEngine:
    return mf.TransferEngine()


def arguments_of(name: str) -> dict[str, object]:
    """Some value of the right type for every documented argument, by keyword."""
    names = [part.split("=")[0].strip() for part in CALLS[name].strip("()").split(",") if part.strip()]
    lists = {"buffers", "peer_buffers", "lengths", "scale_buffers", "offset_buffers", "addrs", "capacities"}
    words = {"dest_session": "127.0.0.1:1", "notify": b"word", "data": b"word"}
    return {n: words.get(n, [4096] if n in lists else 1) for n in names}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_takes_its_arguments_by_keyword_and_by_position(engine: mf.TransferEngine, name: str) -> None:
    given = arguments_of(name)
    by_keyword = getattr(engine, name)(**given)
    by_position = getattr(engine, name)(*given.values())
    assert isinstance(by_keyword, int)
    assert by_keyword == by_position or name == "trans_malloc"
    required = [n for n in given if f"{n}=" not in CALLS[name]]
    getattr(engine, name)(*(given[n] for n in required))
    if required:
        with pytest.raises(TypeError):
            getattr(engine, name)(*(given[n] for n in required[:-1]))
    with pytest.raises(TypeError):
        getattr(engine, name)(**given, unknown=1)
    engine.destroy()


@pytest.mark.parametrize("name", TRANSFERS)
def test_before_initialize(engine: mf.TransferEngine, name: str) -> None:
    given = arguments_of(name)
    if "stream" in given:
        given["stream"] = mf.Stream()
    assert getattr(engine, name)(**given) == -2008
    assert "initialize" in mf.get_and_clear_last_err_msg()


def test_initialize_has_the_documented_signature() -> None:
    parameters = inspect.signature(mf.TransferEngine.initialize).parameters
    names = ["store_url", "session_id", "role", "device_id", "data_op_type", "store_server_role", "nic"]
    assert list(parameters)[1:8] == names
    assert parameters["data_op_type"].default == mf.TransDataOpType.SDMA
    assert parameters["store_server_role"].default == "Decode"
    assert parameters["nic"].default == ""


def test_results_that_are_none(engine: mf.TransferEngine) -> None:
    assert engine.set_peer_down_callback(print) is None  # type: ignore[func-returns-value]
    assert engine.destroy() is None  # type: ignore[func-returns-value]
    assert engine.unInitialize() is None  # type: ignore[func-returns-value]


def test_opcodes_and_op_types() -> None:
    assert (mf.TransferOpcode.READ, mf.TransferOpcode.Read) == (0, 0)
    assert (mf.TransferOpcode.WRITE, mf.TransferOpcode.Write) == (1, 1)
    expected = {"SDMA": 1, "HOST_RDMA": 2, "HOST_TCP": 4, "DEVICE_RDMA": 8, "HOST_URMA": 16, "HOST_SHM": 32,
                "DEVICE_URMA": 64, "DEVICE_UBOE": 128}  # fmt: skip
    assert {name: int(member) for name, member in mf.TransDataOpType.__members__.items()} == expected
    assert getattr(mf.TransferEngine.TransDataOpType, "NO_SUCH_TYPE", None) is None


def test_every_public_name_has_a_docstring() -> None:
    for name, member in inspect.getmembers(mf.TransferEngine):
        if not name.startswith("_") and callable(member):
            assert inspect.getdoc(member), name
