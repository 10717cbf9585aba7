"""The process on the other side of `support.workers`: obeys calls, one at a time, until its pipe closes.

Started as `python -m support.worker_main <pipe fd> <parent pid> <index> <target module> [<script file fd>]`.
The first message it sends is the answer to call 0: whether the target could be imported.
"""

from __future__ import annotations

import faulthandler
import importlib
import linecache
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

from support import processes


def load(target: str, script_fd: int | None) -> ModuleType:
    """The module whose functions are called: an importable one, or one made of a script's text."""
    if script_fd is None:
        return importlib.import_module(target)
    with open(script_fd, encoding="utf-8") as file:
        text = file.read()
    module = ModuleType(target)
    sys.modules[target] = module
    name = f"<{target}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # for tracebacks
    exec(compile(text, name, "exec"), module.__dict__)
    return module


def send_failure(pipe: Connection, number: int, failure: BaseException) -> None:
    pipe.send((number, False, f"{type(failure).__name__}: {failure}", traceback.format_exc()))


def serve(pipe: Connection, module: ModuleType) -> None:
    """Calls come as (number, function, args, kwargs); answers go as (number, worked, value or reason, traceback)."""
    while True:
        try:
            number, name, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            value: Any = getattr(module, name)(*args, **kwargs)
            pipe.send((number, True, value, ""))
        except Exception as failure:
            send_failure(pipe, number, failure)


def main() -> int:
    pipe_fd, parent_pid, _index, target, *script_fd = sys.argv[1:]
    processes.die_with_parent(int(parent_pid))
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.set_inheritable(int(pipe_fd), False)
    with Connection(int(pipe_fd)) as pipe:
        try:
            module = load(target, int(script_fd[0]) if script_fd else None)
        except Exception as failure:
            send_failure(pipe, 0, failure)
            return 1
        pipe.send((0, True, None, ""))
        serve(pipe, module)
    return 0


if __name__ == "__main__":
    sys.exit(main())
