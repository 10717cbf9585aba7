"""MemFabric Hybrid: the memory of many processes as one address space.

    bm                      Big Memory: a pool with global addresses, for processes that share data of any kind
    TransferEngine          one-sided reads and writes into the memory of another process
    shm                     Share Memory: a symmetric heap with barrier and all-gather, for collective kernels
    offload                 host memory for caches, of one process or shared by the ranks of a host
    create_config_store     starts the store through which the members of a cluster find each other
    get_cluster_status      says who is there, in the process that runs the store
    Stream                  an ordered queue of asynchronous copies

Calls of the documented interface return 0 or a negative code; they raise TypeError for wrong types only. After a
failure `get_last_err_msg()` has a sentence that names what was wrong and what to do, and `check(code)` raises it. Calls
that take whole buffers (`pool.put`, `heap.get`, `engine.write`, …) raise `errors.FabricError`. Codes:

    0 OK                        -2005 REPEAT_INVOKE     made once before
    -1 ERROR                    -2006 DUPLICATED        exists with other properties
    -2000 INVALID_PARAM         -2007 NOT_EXIST         unknown
    -2001 MALLOC_FAILED         -2008 NOT_INIT          initialise first
    -2002 NO_RESOURCES          -2009 RES_IN_USE        somebody else has it
    -2003 NOT_STARTED  join     -2012 PARTIAL_FAILED    targets are undefined
    -2004 TIMEOUT               -2014 NOT_CONNECTED     the rank or session is not there
                                -2015 BUFFER_TOO_SMALL

Of external store backends, of which there are none yet: -3000 STORE_INTERNAL, -3001 STORE_INVAL, -3002 STORE_BUFEX,
-3003 STORE_PERM, -3004 STORE_NORES, -3005 STORE_NOENT, -3006 STORE_LOCKED, -3007 STORE_UNLOCKED.

`help()` of `memfabric_hybrid.bm`, `.shm`, `.offload` and `.TransferEngine` goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import SupportsIndex

from memfabric_hybrid import _native, bm, errors, logs, offload, process, shm
from memfabric_hybrid.api import arguments, boundary
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store import parse_url
from memfabric_hybrid.store.protection import tls_configuration
from memfabric_hybrid.store.server import hosting
from memfabric_hybrid.stream import Stream
from memfabric_hybrid.transfer import Notification, Ticket, TransferEngine
from memfabric_hybrid.transports.op_types import TransDataOpType, TransferOpcode
from memfabric_hybrid.transports.routes import Route

__version__ = "1.3.0"
__all__ = [
    "Notification",
    "Route",
    "Stream",
    "Ticket",
    "TransDataOpType",
    "TransferEngine",
    "TransferOpcode",
    "bm",
    "check",
    "create_config_store",
    "errors",
    "get_and_clear_last_err_msg",
    "get_cluster_status",
    "get_include_path",
    "get_last_err_msg",
    "get_lib_path",
    "initialize",
    "offload",
    "set_conf_store_tls",
    "set_conf_store_tls_key",
    "set_extern_logger",
    "set_log_level",
    "shm",
    "uninitialize",
]


def __dir__() -> list[str]:
    """What completion offers: the public names, and none of the modules they come from."""
    return [*__all__, "__doc__", "__version__"]


@boundary.returns_code
def initialize(flags: SupportsIndex = 0) -> None:
    """Turns the library on in this process. Optional and idempotent; `flags` is reserved. Codes: 0."""
    arguments.u32("flags", flags)
    process.start()


def uninitialize() -> None:
    """Turns everything of the library off in this process: objects, memberships, store servers. Idempotent."""
    process.stop()


@boundary.returns_code
def set_log_level(level: SupportsIndex) -> None:
    """0 debug, 1 info, 2 warn (the default), 3 error, 4 trace, 5 fatal. Codes: 0; -2000 for any other number."""
    number = arguments.integer("level", level)
    if number not in logs.LEVELS:
        raise InvalidParam(f"log level is {number}, expected 0..5")
    logs.set_level(number)


@boundary.returns_code
def set_extern_logger(fn: Callable[[int, str], object] | None) -> None:
    """Sends every log line to `fn(level, text)` instead of standard error; None: to standard error again. Codes: 0.

    When this returns, the function before runs no more, unless it is what calls this. An exception in `fn`, even
    `SystemExit`, is swallowed and counted (`logs.handler.extern_failures`).
    """
    if fn is not None:
        arguments.function("fn", fn)
    logs.handler.hand_to(fn)


@boundary.returns_code
def set_conf_store_tls(enable: bool, tls_info: str) -> None:
    """Turns TLS of the store on or off in this process, for the stores it runs and those it connects to.

    `tls_info`: items `key: value` separated by `;`: `tlsCaPath` (a folder), `tlsCaFile` (a list, by commas), `tlsCert`,
    and if wanted `tlsCrlPath`, `tlsCrlFile`, `tlsPk` and `tlsPkPwd`. TLS 1.3, both sides show certificates. Files that
    change are read again for the next connection. Turned off it forgets everything, the key too.

    Codes: 0; -2000 for a file that cannot be used, or a certificate that does not belong to the key.
    """
    text = arguments.text("tls_info", tls_info)
    if enable:
        tls_configuration.process_wide.set_info(text)
    else:
        tls_configuration.process_wide.turn_off()


@boundary.returns_code
def set_conf_store_tls_key(tls_pk: str, tls_pk_pw: str, py_decrypt_func: Callable[[str], str] | None) -> None:
    """Sets the private key for TLS of the store: the content of a PEM file, before or after `set_conf_store_tls`.

    A passphrase that is not empty goes through `py_decrypt_func`, unless that is None. Codes: 0; -2000 for what is no
    key, has another passphrase, or does not belong to the certificate.
    """
    if py_decrypt_func is not None:
        arguments.function("py_decrypt_func", py_decrypt_func)
    tls_configuration.process_wide.set_key(
        arguments.text("tls_pk", tls_pk), arguments.text("tls_pk_pw", tls_pk_pw), py_decrypt_func
    )


def check(code: int) -> None:
    """Raises the FabricError of a call that returned anything but 0: `mf.check(pool.join())`.

    For programs that like exceptions. On the thread that made the call, and before it makes another one: what the
    exception says is that thread's last error. TypeError for what is no code: calls that return something else raise by
    themselves.
    """
    if isinstance(code, bool) or not hasattr(code, "__index__"):
        raise TypeError(f"code must be an integer, not {type(code).__name__}: check() is for calls that return a code")
    number = arguments.integer("code", code)
    if number > 0:
        raise InvalidParam(f"code is {number}, expected 0 or a negative code: check() is for calls that return a code")
    if number != 0:
        raise errors.failure_of(number, get_last_err_msg())


def get_last_err_msg() -> str:
    """The sentence of this thread's last failure; "" if there was none. Success does not clear it."""
    return _native.last_error()


def get_and_clear_last_err_msg() -> str:
    """Like `get_last_err_msg`, and forgets it."""
    sentence = _native.last_error()
    _native.clear_last_error()
    return sentence


@boundary.returns_code
def create_config_store(store_url: str | None) -> None:
    """Starts a store server in this process; it runs until `uninitialize()` or the end of the process.

    Codes: 0, also when this process runs it already; -2000 malformed URL, None; -2009 another process has the address.
    """
    if store_url is None:  # a program passes on a variable that nobody has set
        raise InvalidParam("store_url is None, expected tcp://host:port")
    hosting.host(parse_url(arguments.text("store_url", store_url)), "create_config_store")


@boundary.returns(hosting.NO_STORES)
def get_cluster_status() -> str:
    """What the stores of this process know, as JSON: a list with one object for each, "[]" if it runs none.

    An object says `url`, `uptime_s`, `incarnation` (another one after a restart), `clusters` (by kind of member:
    `world_size` and the `ranks` that are taken), `sessions`, `connections`, `keys`, `bytes`, `revision` and `watches`.
    "[]" comes with a last error: -2007, no store runs here; -2014, one does not answer.
    """
    return hosting.cluster_status()


def get_include_path() -> str:
    """The folder with the C headers."""
    return str(_installed() / "include")


def get_lib_path() -> str:
    """The folder with the C library."""
    return str(_installed() / "lib")


def _installed() -> Path:
    """Where the native parts are: the package's folder, and beside it only in editable installations."""
    return Path(_native.__file__).parent


logs.install()
process.install()
