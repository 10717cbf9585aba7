"""The user and password that etcd may ask for. Read when they are needed, and never logged."""

from __future__ import annotations

from typing import NamedTuple

from memfabric_hybrid import settings
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.settings import ETCD_PASSWORD, ETCD_PASSWORD_FILE, ETCD_USER

MAX_BYTES = 4096


class Credentials(NamedTuple):
    """`repr` says nothing of the password: this may stand in a traceback."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user})"


def configured() -> Credentials | None:
    """None: etcd is asked without. InvalidParam names what is wrong, never the password."""
    user, password, path = settings.text(ETCD_USER), settings.text(ETCD_PASSWORD), settings.text(ETCD_PASSWORD_FILE)
    if not user:
        return None
    if password and path:
        raise InvalidParam(f"{ETCD_PASSWORD.names[0]} and {ETCD_PASSWORD_FILE.names[0]} are both set; keep one of them")
    return Credentials(user, _read(path) if path else password)


def _read(path: str) -> str:
    name = f"{ETCD_PASSWORD_FILE.names[0]} ({path})"
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES).strip().decode()
    except OSError as error:
        raise InvalidParam(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidParam(f"{name} holds no UTF-8 text") from None
