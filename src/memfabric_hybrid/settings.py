"""Everything that can be set from the environment, in one table (`docs/settings.md` is generated from it).

Read at the moment of use, not at import (but for the log level): tests and launchers change the environment. A
malformed value is an InvalidParam that names the variable, never a silent default.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from memfabric_hybrid import _native
from memfabric_hybrid.errors import InvalidParam


class Range(NamedTuple):
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.10g} to {self.high:.10g}"


class Setting(NamedTuple):
    """One variable. `names` are tried in order: ours first, the historical one second. `accepted`: numbers, one of
    these words, or a description.
    """

    names: tuple[str, ...]
    default: str
    unit: str
    accepted: Range | tuple[str, ...]
    meaning: str


STORE_URL = Setting(
    ("MF_CONFIG_STORE_URL", "ASCEND_MF_STORE_URL"),
    "",
    "URL",
    ("tcp://host:port, port 1 to 65535", "etcd://host:port"),
    "Where the store launcher listens (tcp only: an etcd runs by itself); the store of SHARED offload memory whose "
    "configuration names none.",
)
LOG_LEVEL = Setting(
    ("MF_LOG_LEVEL", "ASCEND_MF_LOG_LEVEL"),
    "2",
    "level",
    Range(0, 5),
    "0 debug, 1 info, 2 warn, 3 error, 4 trace, 5 fatal.",
)
HEARTBEAT_TIMEOUT = Setting(
    ("MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S",),
    "3",
    "seconds",
    Range(0.1, 3600),
    "A member that has been silent for this long counts as dead.",
)
STORE_TOKEN = Setting(
    ("MF_CONFIG_STORE_TOKEN",),
    "",
    "secret",
    ("16 bytes or more",),
    "A shared token: the store admits only who knows it, and members trust no other store.",
)
STORE_TOKEN_FILE = Setting(
    ("MF_CONFIG_STORE_TOKEN_FILE",), "", "path", ("a file",), "A file that holds the token, instead."
)
STORE_TLS_INFO = Setting(
    ("MF_CONFIG_STORE_TLS_INFO",),
    "",
    "text",
    ("as set_conf_store_tls",),
    "Turns TLS of the store on in programs that do not give certificates themselves: the text of set_conf_store_tls, "
    "with tlsPk, and tlsPkPwd as the file that holds the passphrase.",
)
DATA_TLS = Setting(
    ("MF_DATA_TLS",),
    "on",
    "word",
    ("on", "off"),
    "Whether what goes between hosts is encrypted as well where the store has TLS; off: on a network that is trusted.",
)
ETCD_USER = Setting(
    ("MF_ETCD_USER",),
    "",
    "name",
    ("any text",),
    "The user that an etcd:// store is asked as, if its authentication is on.",
)
ETCD_PASSWORD = Setting(("MF_ETCD_PASSWORD",), "", "secret", ("any text",), "That user's password.")
ETCD_PASSWORD_FILE = Setting(
    ("MF_ETCD_PASSWORD_FILE",), "", "path", ("a file",), "A file that holds the password, instead."
)
COPY_THREADS = Setting(
    ("MF_COPY_THREADS",),
    "0",
    "threads",
    Range(0, 64),
    "Threads that share one large copy; 0 = as many as cores, at most 4.",
)
HUGE_PAGES = Setting(
    ("MF_HUGE_PAGES",),
    "auto",
    "word",
    ("auto", "off"),
    "Huge pages for pool memory when the machine has them reserved.",
)
PREFAULT = Setting(
    ("MF_PREFAULT",),
    "off",
    "word",
    ("on", "off"),
    "Allocate all of a rank's pool, heap or offload memory when it is made, not when it is touched; not that of "
    "trans_malloc.",
)
TRANSFER_TIMEOUT = Setting(
    ("MF_TRANSFER_TIMEOUT_MS", "ASCEND_TRANSFER_TIMEOUT"),
    "3000",
    "milliseconds",
    Range(1, 3_600_000),
    "How long a transfer engine waits for a session that does not answer, and for peers in memory that it takes back.",
)
HOST_IDENTITY = Setting(
    ("MF_HOST_IDENTITY",),
    "",
    "text",
    ("any text",),
    "Which host this process counts as; unset = by boot and network namespace. Processes that differ share no memory.",
)
FOLLOW_ALL = Setting(
    ("MF_FOLLOW_ALL",),
    "128",
    "ranks",
    Range(1, _native.MAX_RANKS),
    "In worlds of up to so many ranks every member of a pool is told of every other. In larger ones it is told of its "
    "own host and of the hosts that it copies to or waits for, until it asks for more (scale.md).",
)
UCX_LIBRARY = Setting(
    ("MF_UCX_LIBRARY",),
    "",
    "path",
    ("a file",),
    "The libucp of UCX to load; unset = one that is loaded already, the system's, or that of the Python package.",
)
UCX_DEVICES = Setting(
    ("MF_UCX_DEVICES",),
    "",
    "devices",
    ("a comma list, tcp, or tcp:interface",),
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
    DATA_TLS,
    ETCD_USER,
    ETCD_PASSWORD,
    ETCD_PASSWORD_FILE,
    COPY_THREADS,
    HUGE_PAGES,
    PREFAULT,
    TRANSFER_TIMEOUT,
    HOST_IDENTITY,
    FOLLOW_ALL,
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


def _number(setting: Setting) -> float:
    assert isinstance(setting.accepted, Range)
    low, high = setting.accepted
    raw = text(setting)
    try:
        value = float(raw)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise InvalidParam(
            f"{setting.names[0]} is {raw!r}, expected a number of {setting.unit} from {setting.accepted}"
        )
    return value


def heartbeat_timeout_s() -> float:
    return _number(HEARTBEAT_TIMEOUT)


def _whole_number(setting: Setting) -> int:
    value = _number(setting)
    if value != int(value):
        raise InvalidParam(f"{setting.names[0]} is {text(setting)!r}, expected a whole number")
    return int(value)


def copy_threads() -> int:
    return _whole_number(COPY_THREADS)


def follow_all() -> int:
    return _whole_number(FOLLOW_ALL)


def _is_on(setting: Setting) -> bool:
    """Of one that is off, or the other word."""
    value = text(setting)
    if value not in setting.accepted:
        raise InvalidParam(f"{setting.names[0]} is {value!r}, expected {' or '.join(map(str, setting.accepted))}")
    return value != "off"


def huge_pages_wanted() -> bool:
    return _is_on(HUGE_PAGES)


def prefault_wanted() -> bool:
    return _is_on(PREFAULT)


def data_tls_wanted() -> bool:
    return _is_on(DATA_TLS)


def transfer_timeout_ms() -> int:
    return int(_number(TRANSFER_TIMEOUT))


def log_level() -> int:
    """Never raises: a logger that cannot start would hide the reason. Nonsense means the default."""
    try:
        level = int(text(LOG_LEVEL))
    except ValueError:
        level = -1
    return level if 0 <= level <= 5 else int(LOG_LEVEL.default)
