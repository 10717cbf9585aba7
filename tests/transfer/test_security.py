"""Who may attach: the same user and root. Tested with a real second user, on real sockets."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import memfabric_hybrid as mf

pytestmark = [
    pytest.mark.plain_user,
    pytest.mark.plain_store("its programs speak frames, or are of users who cannot read the certificates of the run"),
]

NOBODY = 65534
# Speaks the protocol itself, so that nothing of the library could refuse on this side.
STRANGER = """
import encodings.idna, fcntl, os, socket, struct, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
port = int(sys.argv[1])
with socket.create_connection(("127.0.0.1", port)) as caller:
    caller.sendall(struct.pack("<IHHI", 0x5458464D, 4, 1, 0))
    frame = caller.recv(4096)
magic, version, kind, length = struct.unpack("<IHHI", frame[:12])
assert kind == 2, kind
payload, texts = frame[12:], []
for _ in range(2):
    size = payload[0]
    texts.append(payload[1:1 + size])
    payload = payload[1 + size:]
secret = payload[16:32]
page = os.memfd_create("epochs", os.MFD_ALLOW_SEALING)
os.ftruncate(page, 4096 * 64 + 64)
fcntl.fcntl(page, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
    link.connect(b"\\0" + texts[1])
    body = secret + bytes(16) + b"\\0"
    socket.send_fds(link, [struct.pack("<IHHI", 0x5458464D, 4, 3, len(body)) + body], [page])
    answer, fds, _, _ = socket.recv_fds(link, 4096, 4)
    kind = struct.unpack("<IHHI", answer[:12])[2]
    print(kind, len(fds), answer[13:].decode() if kind == 5 else "")
"""


def attach_as(uid: int, port: int) -> tuple[int, int, str]:
    """(kind of the answer, descriptors that came with it, the reason of a refusal)."""
    program = (
        STRANGER if uid == NOBODY else STRANGER.replace("os.setgroups([]); os.setgid(65534); os.setuid(65534)", "")
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(port)], capture_output=True, text=True, timeout=60, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    kind, fds, *reason = done.stdout.split(maxsplit=2)
    return int(kind), int(fds), "".join(reason)


@pytest.mark.needs_root("only root can become another user")
def test_another_user_cannot_attach(engine: mf.TransferEngine) -> None:
    assert attach_as(0, engine.get_rpc_port()) == (4, 1, "")
    kind, fds, reason = attach_as(NOBODY, engine.get_rpc_port())
    assert (kind, fds) == (5, 0)
    assert f"not user {NOBODY}" in reason


PROBE_AS_NOBODY = """
import os, sys
import memfabric_hybrid as mf
engine = mf.TransferEngine()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
print(engine.send_probe(sys.argv[1]), mf.get_last_err_msg())
"""


@pytest.mark.needs_root("only root can become another user")
def test_the_library_of_another_user_is_told_why(engine: mf.TransferEngine) -> None:
    command = [sys.executable, "-c", PROBE_AS_NOBODY, engine.session_id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("-2014 ")
    assert "lets only that user and root in" in done.stdout


def test_a_wrong_secret_is_refused(engine: mf.TransferEngine) -> None:
    name = unix_name(engine.get_rpc_port())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(b"\0" + name)
        link.settimeout(10)
        body = bytes(32) + b"\0"
        page = os.memfd_create("epochs")
        socket.send_fds(link, [struct.pack("<IHHI", 0x5458464D, 4, 3, len(body)) + body], [page])
        os.close(page)
        answer, fds, _, _ = socket.recv_fds(link, 4096, 4)
        assert struct.unpack("<IHHI", answer[:12])[2] == 5
        assert not fds
        assert b"secret" in answer


def unix_name(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(struct.pack("<IHHI", 0x5458464D, 4, 1, 0))
        payload = caller.recv(4096)[12:]
    payload = payload[1 + payload[0] :]
    return payload[1 : 1 + payload[0]]


def test_a_page_that_could_shrink_is_refused(engine: mf.TransferEngine) -> None:
    with socket.create_connection(("127.0.0.1", engine.get_rpc_port())) as caller:
        caller.sendall(struct.pack("<IHHI", 0x5458464D, 4, 1, 0))
        secret = caller.recv(4096)[-16:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(b"\0" + unix_name(engine.get_rpc_port()))
        link.settimeout(10)
        page = os.memfd_create("epochs", os.MFD_ALLOW_SEALING)
        os.ftruncate(page, 4096 * 64 + 64)
        body = secret + bytes(16) + b"\0"
        socket.send_fds(link, [struct.pack("<IHHI", 0x5458464D, 4, 3, len(body)) + body], [page])
        os.close(page)
        answer, fds, _, _ = socket.recv_fds(link, 4096, 4)
        assert struct.unpack("<IHHI", answer[:12])[2] == 5
        assert not fds
        assert b"sealed" in answer


def is_registration_page(link: Path) -> bool:
    try:
        return "memfabric-registrations" in os.readlink(link)
    except FileNotFoundError:  # the descriptor of the listing itself
        return False


def test_peers_cannot_write_the_registrations(engine: mf.TransferEngine) -> None:
    """The page that peers get cannot be opened for writing, mapped for writing, or made smaller."""
    assert engine.send_probe(engine.session_id) == 0
    pages = [link for link in Path("/proc/self/fd").iterdir() if is_registration_page(link)]
    assert pages
    for page in pages:
        again = os.open(page, os.O_RDWR)
        try:
            with pytest.raises(PermissionError):
                os.pwrite(again, b"x", 0)
            with pytest.raises(PermissionError):
                mmap.mmap(again, 4096)
            with pytest.raises(PermissionError):
                os.ftruncate(again, 0)
        finally:
            os.close(again)


def test_memory_that_is_not_registered_stays_closed(engine: mf.TransferEngine) -> None:
    secret = ctypes.create_string_buffer(b"secret", 6)
    own = ctypes.create_string_buffer(6)
    assert engine.transfer_sync_read(engine.session_id, ctypes.addressof(own), ctypes.addressof(secret), 6) == -2000
    assert own.raw == bytes(6)


TARGET_AS_NOBODY = """
import ctypes, os, sys
import numpy as np
import memfabric_hybrid as mf
from memfabric_hybrid import bm
memory = np.zeros(4096, np.uint8)
assert bm.initialize(sys.argv[2], 1, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
pool = bm.create(0, 4096)
slot = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
engine = mf.TransferEngine()
os.setgroups([]); os.setgid(65534); os.setuid(65534)  # which also forbids debugging: the kernel is careful
ctypes.CDLL(None).prctl(4, int(sys.argv[1]), 0, 0, 0)  # PR_SET_DUMPABLE
assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
assert engine.register(memory) == 0, mf.get_last_err_msg()
assert engine.register_memory(slot, 4096) == 0, mf.get_last_err_msg()
print(engine.session_id, memory.ctypes.data, engine.trans_malloc(4096), slot, flush=True)
sys.stdin.read()
"""
INITIATOR_AS_NOBODY = """
import ctypes, os, sys
import memfabric_hybrid as mf
own = ctypes.create_string_buffer(64)
engine = mf.TransferEngine()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0, int(sys.argv[1])) == 0, mf.get_last_err_msg()
session, private, arena, slot = sys.argv[2], *map(int, sys.argv[3:])
for place in (arena, slot):
    print(engine.transfer_sync_write(session, ctypes.addressof(own), place, 64))
print(engine.transfer_sync_write(session, ctypes.addressof(own), private, 64), mf.get_last_err_msg())
print(*engine.route(session))
print(engine.transfer_sync_read(session, ctypes.addressof(own), private, 64), own.raw == bytes(64))
"""


def as_nobody(
    store_url: str, op_type: int, *, may_be_debugged: bool, before: str = "", after: str = ""
) -> tuple[list[str], str]:
    """What an initiator prints and logs: two processes of one user who is not root."""
    command = [sys.executable, "-c", TARGET_AS_NOBODY, str(int(may_be_debugged)), store_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        assert target.stdin is not None
        assert target.stdout is not None
        where = target.stdout.readline().split()
        done = subprocess.run(
            [sys.executable, "-c", before + INITIATOR_AS_NOBODY + after, str(int(op_type)), *where],
            capture_output=True,
            text=True,
            timeout=60,
        )
        target.stdin.close()
    assert done.returncode == 0, done.stderr
    arena, slot, *private = done.stdout.splitlines()
    assert (arena, slot) == ("0", "0"), "memory of trans_malloc and of a pool works in any case"
    return private, done.stderr


as_root = pytest.mark.needs_root("only root can become another user")
REFUSES = "the kernel does not let this process into process"


@as_root
def test_a_kernel_that_lets_us_in_moves_the_bytes(store_url: str) -> None:
    (written, route, read), log = as_nobody(store_url, mf.TransferEngine.TransDataOpType.SDMA, may_be_debugged=True)
    assert (written.strip(), read) == ("0", "0 True")
    assert route == "peer_process both are on one host"
    assert "TCP" not in log


@as_root
def test_where_the_kernel_refuses_the_network_takes_over_and_says_so(store_url: str) -> None:
    (written, route, read), log = as_nobody(store_url, mf.TransferEngine.TransDataOpType.SDMA, may_be_debugged=False)
    assert (written.strip(), read) == ("0", "0 True")
    assert route.startswith(f"tcp both are on one host, but {REFUSES}")
    assert log.count("goes over TCP, which is slower") == 1
    assert log.count(REFUSES) == 1


HELD_NOTICE = """
import memfabric_hybrid as mf
mf._native._hold_at("notice.hand_over")
"""
LATE_NOTICE = """
import threading
release = threading.Timer(0.2, mf._native._release_at, ["notice.hand_over"])
release.daemon = True  # so that the program's end does not wait for it
release.start()
"""


@as_root
def test_what_is_said_reaches_the_log_though_the_program_ends(store_url: str) -> None:
    _, log = as_nobody(
        store_url,
        mf.TransferEngine.TransDataOpType.SDMA,
        may_be_debugged=False,
        before=HELD_NOTICE,
        after=LATE_NOTICE,
    )
    assert log.count("goes over TCP, which is slower") == 1


@as_root
def test_a_kernel_that_refuses_is_named_with_the_remedy_where_only_it_is_allowed(store_url: str) -> None:
    (written, _, read), _ = as_nobody(store_url, mf.TransferEngine.TransDataOpType.HOST_SHM, may_be_debugged=False)
    assert written.startswith("-2014 ")
    assert REFUSES in written
    assert "trans_malloc" in written
    assert read == "-2014 True"


CONTAINER = """
import ctypes, os, sys
import memfabric_hybrid as mf
assert ctypes.CDLL(None).unshare(0x20000000) == 0  # CLONE_NEWPID, for children
if os.fork() != 0:
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
own = ctypes.create_string_buffer(b"container", 64)
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
session, address = sys.argv[1], int(sys.argv[2])
print(engine.transfer_sync_write(session, ctypes.addressof(own), address, 64), mf.get_last_err_msg())
print(*engine.route(session))
engine.destroy()
"""


@pytest.mark.needs_root("only root can make a pid namespace")
def test_a_process_that_cannot_be_seen_is_reached_through_the_network(engine: mf.TransferEngine) -> None:
    """Containers of one pod: the network is one, processes are not to be seen."""
    memory = np.zeros(64, np.uint8)
    assert engine.register(memory) == 0
    command = [sys.executable, "-c", CONTAINER, engine.session_id, str(memory.ctypes.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    written, route = done.stdout.splitlines()
    assert written.strip() == "0"
    assert route.startswith("tcp both are on one host, but its process cannot be seen from here")
    assert memory.tobytes().rstrip(b"\0") == b"container"
    assert engine.unregister(memory) == 0
