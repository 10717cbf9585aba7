"""Processes as the kernel sees them: who is whose child, what state it is in, who dies with whom."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}")


def die_with_parent(parent_pid: int) -> None:
    """Called in a child: the kernel kills it when the thread that started it ends.

    The parent may have died before this call; then nobody will send the signal, and we end here.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent() != parent_pid:
        os._exit(1)


def parent() -> int:
    """The number of our parent among the processes that /proc shows; 0 if it is not one of them.

    In a new namespace of processes getppid() is 0 whoever the parent is, and an older /proc still knows it.
    """
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[1])


def adopt_orphans() -> None:
    """Grandchildren whose parent dies become our children, so that nobody can leave one behind unseen."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """Pids of this process's children, zombies included."""
    tasks = Path("/proc/self/task")
    found: set[int] = set()
    for task in os.listdir(tasks):
        try:
            found.update(int(pid) for pid in (tasks / task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended while we looked
    return found


def state(pid: int) -> str:
    """One letter of proc(5): R, S, D, Z, T …; "" when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def command_line(pid: int) -> str:
    """What the process runs, for people; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until_dead(pid: int, timeout_s: float) -> bool:
    """Whether our child ended in time. It is not reaped, so its number, also as a group's, stays its own."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def reap_if_dead(pid: int) -> bool:
    """Whether the child had ended and is now forgotten by the kernel. Not for children somebody else waits for."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def kill_group(leader: int) -> None:
    """SIGKILL to a whole group. The caller has not reaped its leader yet, so the number cannot be anyone else's."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def describe_exit(returncode: int) -> str:
    """In words: "exited with 3", "was killed by SIGSEGV"."""
    if returncode >= 0:
        return f"exited with {returncode}"
    return f"was killed by {signal.Signals(-returncode).name}"
