"""The library's life in one process: on, off, at exit, and after a fork.

Everything that owns threads or sockets is ended here, top layer first, so that nothing outlives the process's wish.
"""

from __future__ import annotations

import atexit
import os

from memfabric_hybrid import _native, logs, settings
from memfabric_hybrid.api import failure_log
from memfabric_hybrid.bm import runtime as bm_runtime
from memfabric_hybrid.machine import forks
from memfabric_hybrid.machine.service_thread import THREAD_ENDS_S
from memfabric_hybrid.offload import runtime as offload_runtime
from memfabric_hybrid.shm import runtime as shm_runtime
from memfabric_hybrid.store import store_users
from memfabric_hybrid.store.server import hosting
from memfabric_hybrid.transfer import engines

_log = logs.get(__name__)


def start() -> None:
    """Idempotent, and optional: the modules start what they need when they are initialised."""
    _native.set_copy_threads(settings.copy_threads())


def stop() -> None:
    """Ends Share Memory, Big Memory, the offload memory, all transfer engines and all store servers; idempotent."""
    forks.notice()
    shm_runtime.stop()
    bm_runtime.stop()
    offload_runtime.stop()
    engines.stop_all()
    hosting.stop_all()


def at_exit() -> None:
    """The program ends; a C program says so itself (`capi_bridge`)."""
    failure_log.close()
    stop()
    _native._await_notices(THREAD_ENDS_S)
    _native.shut_down()
    logs.handler.extern = None  # the program's function would keep its module alive beyond the interpreter's end


def _in_forked_child() -> None:
    """A child must not talk on its parent's sockets, nor keep them open when the parent dies."""
    _native._forget_notices()
    shm_runtime.abandon_after_fork()
    bm_runtime.abandon_after_fork()
    offload_runtime.abandon_after_fork()
    engines.abandon_after_fork()
    hosting.abandon_after_fork()
    store_users.abandon_after_fork()


def install() -> None:
    """Called once by the package."""
    _native._set_failure_handler(failure_log.report)
    _native._set_notice_handler(lambda sentence: _log.warning("%s", sentence))
    atexit.register(at_exit)
    forks.in_child(_in_forked_child)
    os.register_at_fork(after_in_child=forks.notice)
