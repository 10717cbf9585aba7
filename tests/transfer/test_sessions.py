"""Session ids of every kind, ports, stores, roles, and the handshake's refusals."""

from __future__ import annotations

import ctypes
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.transfer.session_id import is_address
from support.workers import Cluster

Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


def can_reach(engine: mf.TransferEngine, session: str) -> None:
    """A write and a read through the session, byte by byte."""
    target, source = bytearray(8), ctypes.create_string_buffer(b"12345678", 8)
    must(engine.register(target))
    with mf.TransferEngine() as initiator:
        must(initiator.initialize(None, "127.0.0.1:0", "Prefill", 0))
        address = ctypes.addressof(ctypes.c_char.from_buffer(target))
        must(initiator.transfer_sync_write(session, ctypes.addressof(source), address, 8))
        assert target == b"12345678"
    must(engine.unregister(target))


@pytest.mark.parametrize(
    "form", ["{ip}:{port}", "{ip}:0", "{ip}", "localhost:{port}", "localhost", "[::1]:{port}", "[::1]"]
)
def test_forms_of_addresses(form: str) -> None:
    with mf.TransferEngine() as engine:
        reserved = engine.get_rpc_port()
        assert 0 < reserved < 65536
        assert engine.get_rpc_port() == reserved
        must(engine.initialize(None, form.format(ip="127.0.0.1", port=reserved), "Decode", 0))
        assert engine.get_rpc_port() == reserved
        assert engine.session_id.endswith(f":{reserved}")
        can_reach(engine, engine.session_id)


def test_port_asked_after_initialize() -> None:
    with mf.TransferEngine() as engine:
        must(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
        can_reach(engine, f"127.0.0.1:{engine.get_rpc_port()}")


def test_reserved_ports_are_held() -> None:
    with ExitStack() as stack:
        engines = [stack.enter_context(mf.TransferEngine()) for _ in range(50)]
        ports = {engine.get_rpc_port() for engine in engines}
        assert len(ports) == 50
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))


def test_a_taken_port_is_named(engine: mf.TransferEngine) -> None:
    with mf.TransferEngine() as other:
        assert other.initialize(None, engine.session_id, "Decode", 0) == -2009
        assert f"port {engine.get_rpc_port()} is taken" in mf.get_last_err_msg()
        must(other.initialize(None, "127.0.0.1:0", "Decode", 0))
        assert other.initialize(None, "127.0.0.1:0", "Decode", 0) == -2005


@pytest.mark.parametrize("bad", ["", ":80", "127.0.0.1:x", "127.0.0.1:70000", "[::1", "[::1]x", "a b:1",
                                 "no such host:1",
                                 "name without store", "203.0.113.7:4000", "no-such-host.invalid:1"])  # fmt: skip
def test_bad_session_ids(bad: str) -> None:
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, bad, "Decode", 0) == -2000
        assert mf.get_last_err_msg()
        must(engine.initialize(None, "127.0.0.1:0", "Decode", 0))


@pytest.mark.parametrize("bad", ["", "127.0.0.1;5001", "127.0.0.1:5001_77", "127.0.0.1_77", "127.0.0.1.5001", "127.0.0",
                                 "5001", "host:x", "a:b:c", "::1::2", "[::1]:50_7", "a name", "x" * 256])  # fmt: skip
def test_ids_that_nobody_can_dial_are_refused_at_initialize(bad: str, store_url: str) -> None:
    """Also where a store could publish them as names: their peers would get the error."""
    with mf.TransferEngine() as engine:
        assert engine.initialize(store_url, bad, "Decode", 0) == -2000
        assert bad[:200] in mf.get_last_err_msg()
        must(engine.initialize(store_url, "decode/3.rank_0@host-1", "Decode", 0))


def test_bad_destinations(engine: mf.TransferEngine) -> None:
    for bad in ("", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "a b:1"):
        assert engine.transfer_sync_write(bad, 4096, 4096, 8) == -2000, bad
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        session = f"127.0.0.1:{nobody.getsockname()[1]}"
        began = time.monotonic()
        for _ in range(3):
            assert engine.transfer_sync_write(session, 4096, 4096, 8) == -2014
            assert session in mf.get_last_err_msg()
            assert engine.send_probe(session) == -2014
        assert time.monotonic() - began < 1


def test_calls_before_and_after(engine: mf.TransferEngine) -> None:
    other = mf.TransferEngine()
    assert other.transfer_sync_write(engine.session_id, 4096, 4096, 8) == -2008
    assert other.send_probe(engine.session_id) == -2008
    assert other.session_id == ""
    must(other.initialize(None, "127.0.0.1:0", "Decode", 0))
    must(other.send_probe(engine.session_id))
    other.unInitialize()
    other.destroy()
    assert other.send_probe(engine.session_id) == -2008
    assert "initialize() first" in mf.get_last_err_msg()
    must(other.initialize(None, "127.0.0.1:0", "Prefill", 0))
    must(other.send_probe(engine.session_id))
    other.destroy()


def test_clients_of_all_generations(store_url: str) -> None:
    """Positional and keyword arguments, old and new names, every kind of store URL, every pair of roles."""
    kinds = mf.TransferEngine.TransDataOpType
    assert kinds is mf.TransDataOpType
    with ExitStack() as stack:
        engines = [stack.enter_context(mf.TransferEngine()) for _ in range(8)]
        must(engines[0].initialize(None, "127.0.0.1:0", "Prefill", 0))
        must(engines[1].initialize("tcp://127.0.0.1", f"127.0.0.1:{engines[1].get_rpc_port()}", "Decode", 3))
        must(engines[2].initialize(store_url, "127.0.0.1", "Prefill", 0, kinds.SDMA))
        must(engines[3].initialize(store_url=store_url, unique_id="127.0.0.1:0", role="Decode", device_id=1))
        must(engines[4].initialize(store_url, "localhost", "Decode", 0, kinds.DEVICE_RDMA, "Prefill", ""))
        must(engines[5].initialize(
            store_url=store_url, session_id="[::1]", role="Prefill", device_id=0,
            data_op_type=getattr(kinds, "host_shm".upper()),
            store_server_role="Decode", nic="tcp://10.0.0.1/24:0"))  # fmt: skip
        must(engines[6].initialize(store_url, "a-prefill-worker", "Prefill", 0))
        must(engines[7].initialize(store_url, "a-decode-worker", "Decode", 0))
        for _ in range(3):
            assert mf.create_config_store(store_url) in (0, -2009)
        for engine in engines:  # the port, asked for afterwards, is that of the session
            assert engine.session_id.endswith(f":{engine.get_rpc_port()}")
        source, place = ctypes.create_string_buffer(b"12345678", 8), bytearray(8)
        address = ctypes.addressof(ctypes.c_char.from_buffer(place))
        sessions = [engine.session_id for engine in engines[:6]] + ["a-prefill-worker", "a-decode-worker"]
        for engine in engines:
            must(engine.register(place))
        for engine in engines[2:]:  # the first two have no store that could know names
            for session in sessions:
                must(engine.transfer_sync_write(session, ctypes.addressof(source), address, 8))
        assert engines[2].send_probe("nobody") == -2014
        assert "knows no engine of that name" in mf.get_last_err_msg()


@pytest.mark.also_on_etcd
@pytest.mark.also_over_tls
def test_every_process_creates_the_store(workers: Workers, store_url: str) -> None:
    """As some clients do on every rank: one of them runs it, or an etcd does, and names lead to everybody."""
    with workers(3) as cluster:
        codes = cluster.call_all("create_store", store_url)
        assert sorted(codes) == ([0, 0, 0] if store_url.startswith("etcd") else [-2009, -2009, 0])
        assert cluster.call_all("create_store", store_url) == codes
        for index, role in enumerate(("Prefill", "Decode", "Prefill")):
            cluster.call(index, "start", f"worker-{index}", role, store_url)
        places = cluster.call_all("open_memory", "m", 4096)
        for source in range(3):
            for target in range(3):
                session = f"worker-{target}"
                assert cluster.call(source, "write", session, "m", places[target], 8) == (0, "")
                assert cluster.call(source, "call", "send_probe", session) == (0, "")


@pytest.mark.parametrize("change", [
    {"role": "prefill"}, {"role": ""}, {"store_server_role": "x"}, {"nic": "x" * 64}, {"data_op_type": 0},
    {"data_op_type": 256}, {"store_url": "http://x:1"}, {"store_url": "tcp://:1"}, {"session_id": "a-name"},
    {"store_url": "tcp://127.0.0.1", "session_id": "a-name"},
])  # fmt: skip
def test_values_that_are_refused(change: dict[str, object]) -> None:
    good: dict[str, object] = {"store_url": None, "session_id": "127.0.0.1:0", "role": "Decode", "device_id": 0}
    with mf.TransferEngine() as engine:
        assert engine.initialize(**{**good, **change}) == -2000  # type: ignore[arg-type]
        assert not engine.session_id
        must(engine.initialize(**good))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["HOST_RDMA", "HOST_URMA"])
def test_routes_that_do_not_exist_say_so(kind: str) -> None:
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0, getattr(mf.TransDataOpType, kind)) == -2002
        assert kind in mf.get_last_err_msg()


def test_wrong_types() -> None:
    with mf.TransferEngine() as engine:
        for arguments in ((1, "127.0.0.1", "Decode", 0), (None, 5, "Decode", 0), (None, "127.0.0.1", "Decode", "0"),
                          (None, None, "Decode", 0), (None, "127.0.0.1", 1, 0),
                          (None, "127.0.0.1", "Decode", -1)):  # fmt: skip
            with pytest.raises(TypeError):
                engine.initialize(*arguments)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            engine.initialize(None, "127.0.0.1", "Decode", 0, unique_id="127.0.0.1")
        with pytest.raises(TypeError):
            engine.set_peer_down_callback(5)  # type: ignore[arg-type]


def test_a_name_without_a_running_store_fails_in_time(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_TRANSFER_TIMEOUT", "500")
    with mf.TransferEngine() as engine:
        began = time.monotonic()
        assert engine.initialize(store_url, "a-name", "Prefill", 0) == -2004
        assert time.monotonic() - began < 3
        must(engine.initialize(store_url, "127.0.0.1:0", "Prefill", 0))  # an address needs no store
        assert time.monotonic() - began < 4


@pytest.mark.also_on_etcd
def test_a_name_is_its_engines_until_that_is_dead(
    workers: Workers, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes after a dead engine waits until the store has noticed its death: an etcd does so some seconds later."""
    monkeypatch.setenv("MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S", "1")
    assert mf.create_config_store(store_url) == 0
    with workers(1) as cluster, mf.TransferEngine() as other:
        session = cluster.call(0, "start", "name", "Prefill", store_url)
        assert other.initialize(store_url, "name", "Prefill", 0) == -2006
        assert f"session 'name' is the name of another engine, at {session}" in mf.get_last_err_msg()
        cluster.kill(0)
        must(other.initialize(store_url, "name", "Prefill", 0))
        cluster.start(0)
        cluster.call(0, "start", "another", "Prefill", store_url)
        must(other.send_probe("another"))


def test_time_out_from_the_environment(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> None:
    monkeypatch.setenv("ASCEND_TRANSFER_TIMEOUT", "300")
    with mf.TransferEngine() as engine, workers(1) as cluster:
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        session = cluster.call(0, "start")
        cluster.kill(0, signal.SIGSTOP)
        began = time.monotonic()
        assert engine.send_probe(session) == -2004
        assert "did not answer in time" in mf.get_last_err_msg()
        assert 0.25 < time.monotonic() - began < 1
        cluster.kill(0, signal.SIGCONT)
        must(engine.send_probe(session))
    monkeypatch.setenv("ASCEND_TRANSFER_TIMEOUT", "soon")
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == -2000
        assert "TRANSFER_TIMEOUT" in mf.get_last_err_msg()


def test_many_threads_share_one_attempt(engine: mf.TransferEngine, workers: Workers) -> None:
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        cluster.kill(0, signal.SIGSTOP)
        codes: list[int] = []
        threads = [threading.Thread(target=lambda: codes.append(engine.send_probe(session))) for _ in range(16)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [-2004] * 16
        assert time.monotonic() - began < 5
        cluster.kill(0, signal.SIGCONT)


@pytest.mark.plain_store("with TLS it is said in other words")
def test_what_is_no_engine(engine: mf.TransferEngine) -> None:
    def serve(listener: socket.socket, answer: bytes) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    header = struct.pack("<IHHI", 0x5458464D, 4, 2, 4)
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", header + b"xxxx", header[:8], b"\0" * 100):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=serve, args=(listener, answer))
            thread.start()
            session = f"127.0.0.1:{listener.getsockname()[1]}"
            assert engine.send_probe(session) == -2014
            assert "understands" in mf.get_last_err_msg()
            thread.join()


@pytest.mark.plain_store("with TLS it is said in other words")
def test_another_host_is_reached_only_if_the_network_is_allowed() -> None:
    """A Welcome with another host's identity, and an engine that may use memory of its own host only."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            payload = b"".join(bytes([len(text)]) + text for text in (b"elsewhere/1", b"x")) + bytes(32)
            connection.sendall(struct.pack("<IHHI", 0x5458464D, 4, 2, len(payload)) + payload)

    with mf.TransferEngine() as engine, socket.create_server(("127.0.0.1", 0)) as listener:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0, mf.TransDataOpType.HOST_SHM) == 0
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        assert engine.send_probe(f"127.0.0.1:{listener.getsockname()[1]}") == -2014
        assert "data_op_type allows memory of this host only" in mf.get_last_err_msg()
        thread.join()


def test_a_crowd_of_silent_callers_keeps_nobody_out(engine: mf.TransferEngine) -> None:
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", engine.get_rpc_port())))
        can_reach(engine, engine.session_id)


@pytest.mark.parametrize(("session", "expected"), [
    ("127.0.0.1", True), ("127.0.0.1:5", True), ("[::1]:5", True), ("::1", True), ("[::1]", True), ("host:5", True),
    ("localhost", True), ("worker-3", False), ("host:x", False), ("", False), ("a:b:c", False),
])  # fmt: skip
def test_which_ids_are_addresses(session: str, expected: bool) -> None:
    assert is_address(session) == expected
