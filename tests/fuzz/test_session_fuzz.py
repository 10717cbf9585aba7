"""Frames that nobody should send to a session's sockets: whatever arrives, the engine goes on and changes nothing."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import struct

import pytest

import memfabric_hybrid as mf
from support import campaigns

HEADER = struct.Struct("<IHHI")
MAGIC, VERSION = 0x5458464D, 4
SEEDS = (
    HEADER.pack(MAGIC, VERSION, 1, 0),
    HEADER.pack(MAGIC, VERSION, 3, 33) + bytes(33),
    HEADER.pack(MAGIC, VERSION, 2, 40) + b"\x03abc\x03def" + bytes(32),
    HEADER.pack(MAGIC, VERSION, 4, 20) + bytes(20),
    HEADER.pack(MAGIC, VERSION, 5, 4) + b"\x03why",
    HEADER.pack(MAGIC, VERSION, 6, 28) + bytes(28),
    HEADER.pack(MAGIC, VERSION, 7, 4) + bytes(4),
    HEADER.pack(MAGIC, VERSION, 12, 12) + bytes(12),
    HEADER.pack(MAGIC, VERSION, 13, 9) + bytes(9),
    HEADER.pack(MAGIC, VERSION, 14, 16) + bytes(16),
    HEADER.pack(MAGIC, VERSION, 15, 30) + bytes(30),
)


def mutated(rng: random.Random) -> bytes:
    """A frame with a few bytes changed, cut, doubled, or pure noise."""
    frame = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randint(0, 4)):
        kind = rng.randrange(6)
        place = rng.randrange(len(frame)) if frame else 0
        if kind == 0 and frame:
            frame[place] = rng.randrange(256)
        elif kind == 1:
            del frame[place:]
        elif kind == 2:
            frame[place:place] = rng.randbytes(rng.randint(1, 40))
        elif kind == 3:
            frame += rng.choice(SEEDS)
        elif kind == 4 and len(frame) >= 12:
            struct.pack_into("<I", frame, 8, rng.choice((0, 1, 1024, 1025, 2**31, 2**32 - 1, rng.randrange(2048))))
        else:
            frame = bytearray(rng.randbytes(rng.randint(0, 64)))
    return bytes(frame)


def unix_name(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(SEEDS[0])
        payload = caller.recv(4096)[12:]
    payload = payload[1 + payload[0] :]
    return payload[1 : 1 + payload[0]]


def still_works(engine: mf.TransferEngine, memory: bytearray, turn: int) -> None:
    """An engine that has never spoken to it before attaches and writes."""
    data = struct.pack("<Q", turn)
    source = ctypes.create_string_buffer(data, 8)
    with mf.TransferEngine() as initiator:
        assert initiator.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        code = initiator.transfer_sync_write(engine.session_id, ctypes.addressof(source), place, 8)
        assert code == 0, mf.get_last_err_msg()
    assert memory == data


@pytest.mark.soak
def test_mutated_frames_change_nothing(rng: random.Random) -> None:
    frames = campaigns.length("MF_FUZZ_FRAMES", 4_000)
    memory = bytearray(8)
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
        assert engine.register(memory) == 0
        still_works(engine, memory, 1)
        name = unix_name(engine.get_rpc_port())
        sent = 0
        while sent < frames:
            # A connection counts as one frame, since the service stops listening at the first one that is wrong; what
            # sometimes follows must do no harm either.
            count = 1 if rng.random() < 0.95 else rng.randint(2, 50)
            if rng.random() < 0.5:
                with socket.create_connection(("127.0.0.1", engine.get_rpc_port())) as caller:
                    send_all(caller, b"".join(mutated(rng) for _ in range(count)))
            else:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
                    link.connect(b"\0" + name)
                    send_packets(link, rng, count)
            sent += 1
            if rng.random() < 0.01:
                still_works(engine, memory, sent)
        still_works(engine, memory, sent)
        assert engine._registration_count == 1
    mf.uninitialize()


def send_all(caller: socket.socket, data: bytes) -> None:
    try:
        caller.sendall(data)
    except OSError as error:
        assert isinstance(error, (ConnectionResetError, BrokenPipeError))  # noqa: PT017 (it hung up in the middle)


def send_packets(link: socket.socket, rng: random.Random, count: int) -> None:
    link.setblocking(False)
    for _ in range(count):
        descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(rng.choice((0, 0, 0, 1, 2, 5)))]
        try:
            socket.send_fds(link, [mutated(rng) or b"x"], descriptors)
        except OSError:
            return  # it hung up, or its queue is full
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
