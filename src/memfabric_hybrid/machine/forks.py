"""Forks of this process, whoever made them: Python's hooks run for `os.fork` only, not when a C library forks.

A child must not talk on its parent's sockets, nor wait for locks that the parent's threads hold. `process` says what to
let go; every entry into the library sees to it that this has been done.
"""

from __future__ import annotations

from collections.abc import Callable

from memfabric_hybrid import _native

_let_go: list[Callable[[], object]] = []
_known = _native.fork_count()


def in_child(let_go: Callable[[], object]) -> None:
    """`let_go` will run once in every forked child, before anything else of the library does."""
    _let_go.append(let_go)


def notice() -> None:
    """Returns at once, unless this process was forked since the last call."""
    global _known
    count = _native.fork_count()
    if count != _known:
        _known = count
        for let_go in _let_go:
            let_go()
