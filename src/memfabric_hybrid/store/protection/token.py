"""The shared token: where a process has it from. It is read when it is needed, and never logged."""

from __future__ import annotations

from memfabric_hybrid import settings
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.settings import STORE_TOKEN, STORE_TOKEN_FILE

MIN_BYTES, MAX_BYTES = 16, 4096


def configured() -> bytes | None:
    """None: there is none. InvalidParam names what is wrong with it, never the token."""
    path, text = settings.text(STORE_TOKEN_FILE), settings.text(STORE_TOKEN)
    if path and text:
        raise InvalidParam(f"{STORE_TOKEN.names[0]} and {STORE_TOKEN_FILE.names[0]} are both set; keep one of them")
    if text:
        return _checked(STORE_TOKEN.names[0], text.encode(errors="surrogateescape").strip())
    if path:
        name = f"{STORE_TOKEN_FILE.names[0]} ({path})"
        return _checked(name, _read(name, path).strip())
    return None


def _read(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidParam(f"{name} cannot be read: {error.strerror}") from None


def _checked(name: str, token: bytes) -> bytes:
    """A short one could be guessed from what goes over the wire."""
    if not MIN_BYTES <= len(token) <= MAX_BYTES:
        raise InvalidParam(
            f"{name} holds a token of {len(token)} bytes, expected {MIN_BYTES} to {MAX_BYTES}: take a random one, "
            "as `openssl rand -hex 32` prints it"
        )
    return token
