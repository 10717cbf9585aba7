"""Transfers on a stream: leaving its block tells what failed."""

from __future__ import annotations

import ctypes

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.errors import InvalidParam


def test_block_with_a_stream_raises_what_failed_on_it(engine: mf.TransferEngine) -> None:
    buffer = ctypes.create_string_buffer(64)
    here = ctypes.addressof(buffer)  # registered by nobody: found out when its turn comes

    def write(stream: mf.Stream) -> None:
        code = engine.batch_transfer_async_write_submit(engine.session_id, [here], [here], [64], stream)
        assert code == 0, mf.get_last_err_msg()

    with pytest.raises(InvalidParam, match="not all inside memory that is registered"), mf.Stream() as stream:
        write(stream)
    with pytest.raises(KeyError, match="mine"), mf.Stream() as stream:  # noqa: PT012
        write(stream)
        raise KeyError("mine")
    with mf.Stream() as stream:
        write(stream)
        assert stream.wait() == -2000  # told already
