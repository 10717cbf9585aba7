"""Functions of the C program, as Python calls them: without the interpreter's lock, so that they may call us."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from memfabric_hybrid.errors import FabricError

_LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)
_EXIT = ctypes.CFUNCTYPE(None, ctypes.c_int)
_GROUP_EVENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p)
_PEER_DOWN = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_DECRYPT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)
)
PASSPHRASE_ROOM = 4096  # bytes for what a decrypting function answers


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def logger(address: int) -> Callable[[int, str], None]:
    function = _LOGGER(address)
    return lambda level, text: function(level, _bytes(text))


def exit_function(address: int) -> Callable[[int], None]:
    return _EXIT(address)


def group_event_handler(address: int, handle: int, context: int) -> Callable[[int, int], None]:
    function = _GROUP_EVENT(address)
    return lambda rank, event: function(handle, rank, int(event), context)


def peer_down_callback(address: int, user_data: int) -> Callable[[str], None]:
    function = _PEER_DOWN(address)
    return lambda session: function(_bytes(session), user_data)


def decrypting(address: int) -> Callable[[str], str]:
    """`decrypt(cipher)` gives the plain text, or raises."""
    function = _DECRYPT(address)

    def decrypt(cipher: str) -> str:
        given, plain, length = _bytes(cipher), ctypes.create_string_buffer(PASSPHRASE_ROOM), ctypes.c_size_t()
        length.value = PASSPHRASE_ROOM
        code = function(given, len(given), plain, ctypes.byref(length))
        if code != 0 or length.value > PASSPHRASE_ROOM:
            raise FabricError(f"the passphrase could not be decrypted: the decrypting function returned {code}")
        return plain.raw[: length.value].decode()

    return decrypt
