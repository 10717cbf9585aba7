"""Everything that can be set from the environment, in one table (`docs/settings.md` is generated from it).

Read at the moment of use, not at import: tests and launchers change the environment. A malformed value is an
InvalidParam that names the variable, never a silent default.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from memfabric_hybrid.errors import InvalidParam


class Setting(NamedTuple):
    """One variable. `names` are tried in order: ours first, the historical one second."""

    names: tuple[str, ...]
    default: str
    unit: str
    meaning: str


STORE_URL = Setting(
    ("MF_CONFIG_STORE_URL", "ASCEND_MF_STORE_URL"),
    "",
    "URL",
    "Where the store launcher listens; the store of SHARED offload memory whose configuration names none.",
)
LOG_LEVEL = Setting(
    ("MF_LOG_LEVEL", "ASCEND_MF_LOG_LEVEL"), "2", "0..5", "0 debug, 1 info, 2 warn, 3 error, 4 trace, 5 fatal."
)
HEARTBEAT_TIMEOUT = Setting(
    ("MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S",),
    "3",
    "seconds",
    "A member that has been silent for this long counts as dead.",
)
STORE_TOKEN = Setting(
    ("MF_CONFIG_STORE_TOKEN",),
    "",
    "secret",
    "A shared token of 16 bytes or more: the store admits only who knows it, and members trust no other store.",
)
STORE_TOKEN_FILE = Setting(("MF_CONFIG_STORE_TOKEN_FILE",), "", "path", "A file that holds the token, instead.")
STORE_TLS_INFO = Setting(
    ("MF_CONFIG_STORE_TLS_INFO",),
    "",
    "text",
    "Turns TLS of the store on in programs that do not give certificates themselves: the text of set_conf_store_tls, "
    "with tlsPk, and tlsPkPwd as the file that holds the passphrase.",
)
COPY_THREADS = Setting(
    ("MF_COPY_THREADS",), "0", "threads", "Threads that share one large copy; 0 = as many as cores, at most 4."
)
HUGE_PAGES = Setting(
    ("MF_HUGE_PAGES",), "auto", "auto|off", "Use huge pages for pool memory when the machine has them reserved."
)
PREFAULT = Setting(
    ("MF_PREFAULT",), "off", "on|off", "Allocate all of a rank's pool or heap memory at create, not when it is touched."
)
TRANSFER_TIMEOUT = Setting(
    ("MF_TRANSFER_TIMEOUT_MS", "ASCEND_TRANSFER_TIMEOUT"),
    "3000",
    "milliseconds",
    "How long a transfer engine waits for a session that does not answer, and for peers in memory that it takes back.",
)
HOST_IDENTITY = Setting(
    ("MF_HOST_IDENTITY",),
    "",
    "text",
    "Which host this process counts as; unset = by boot and network namespace. Processes that differ share no memory.",
)
UCX_LIBRARY = Setting(
    ("MF_UCX_LIBRARY",),
    "",
    "path",
    "The libucp of UCX to load; unset = one that is loaded already, the system's, or that of the Python package.",
)
UCX_DEVICES = Setting(
    ("MF_UCX_DEVICES",),
    "",
    "devices",
    "What UCX uses: RDMA devices (mlx5_0,mlx5_1) or ports (mlx5_0:1), or tcp or tcp:eth0 for HOST_RDMA over plain TCP; "
    "unset = all active RDMA ports.",
)

ALL: tuple[Setting, ...] = (
    STORE_URL,
    LOG_LEVEL,
    HEARTBEAT_TIMEOUT,
    STORE_TOKEN,
    STORE_TOKEN_FILE,
    STORE_TLS_INFO,
    COPY_THREADS,
    HUGE_PAGES,
    PREFAULT,
    TRANSFER_TIMEOUT,
    HOST_IDENTITY,
    UCX_LIBRARY,
    UCX_DEVICES,
)


def text(setting: Setting) -> str:
    """The value as it stands in the environment, or the default."""
    for name in setting.names:
        value = os.environ.get(name)
        if value:
            return value
    return setting.default


def _number(setting: Setting, low: float, high: float) -> float:
    raw = text(setting)
    try:
        value = float(raw)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise InvalidParam(
            f"{setting.names[0]} is {raw!r}, expected a number of {setting.unit} from {low:g} to {high:g}"
        )
    return value


def heartbeat_timeout_s() -> float:
    return _number(HEARTBEAT_TIMEOUT, 0.1, 3600)


def copy_threads() -> int:
    value = _number(COPY_THREADS, 0, 64)
    if value != int(value):
        raise InvalidParam(f"{COPY_THREADS.names[0]} is {text(COPY_THREADS)!r}, expected a whole number")
    return int(value)


def _choice(setting: Setting, yes: str) -> bool:
    value = text(setting)
    if value not in (yes, "off"):
        raise InvalidParam(f"{setting.names[0]} is {value!r}, expected {yes} or off")
    return value == yes


def huge_pages_wanted() -> bool:
    return _choice(HUGE_PAGES, "auto")


def prefault_wanted() -> bool:
    return _choice(PREFAULT, "on")


def transfer_timeout_ms() -> int:
    return int(_number(TRANSFER_TIMEOUT, 1, 3_600_000))


def log_level() -> int:
    """Never raises: a logger that cannot start would hide the reason. Nonsense means the default."""
    try:
        level = int(text(LOG_LEVEL))
    except ValueError:
        level = -1
    return level if 0 <= level <= 5 else int(LOG_LEVEL.default)
