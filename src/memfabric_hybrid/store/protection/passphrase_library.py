"""A shared library that decrypts the passphrase of a key, as the C interface has it: it exports `DecryptPassword`."""

from __future__ import annotations

import ctypes

from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store.protection.private_key import Decrypt

MAX_PLAIN_BYTES = 1024  # as many as OpenSSL takes
FUNCTION = "DecryptPassword"


def decrypt_of(path: str) -> Decrypt:
    """InvalidParam when there is no such library, or no such function in it."""
    try:
        function = getattr(ctypes.CDLL(path), FUNCTION)
    except OSError as error:
        raise InvalidParam(f"decrypterLibPath {path} cannot be loaded: {error}") from None
    except AttributeError:
        raise InvalidParam(f"decrypterLibPath {path} exports no {FUNCTION}") from None
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]

    def decrypt(cipher: str) -> str:
        """`int DecryptPassword(const char *cipher, size_t cipherLen, char *plain, size_t *plainLen)`"""
        encoded = cipher.encode(errors="surrogateescape")
        plain = ctypes.create_string_buffer(MAX_PLAIN_BYTES + 1)
        size_bytes = ctypes.c_size_t(MAX_PLAIN_BYTES)
        try:
            code = function(encoded, len(encoded), plain, ctypes.byref(size_bytes))
            if code != 0 or size_bytes.value > MAX_PLAIN_BYTES:
                raise InvalidParam(f"{FUNCTION} of {path} returned {code} and a length of {size_bytes.value}")
            return plain.raw[: size_bytes.value].rstrip(b"\0").decode(errors="surrogateescape")
        finally:
            ctypes.memset(plain, 0, len(plain))

    return decrypt
