"""Python imports this by itself where it is in PYTHONPATH: processes are then started as MF_START_METHOD says, also
where a program asks for another way.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import os

_method = os.environ["MF_START_METHOD"]
_original = multiprocessing.get_context


def _get_context(method: str | None = None) -> multiprocessing.context.BaseContext:
    return _original(_method)


multiprocessing.set_start_method(_method)
multiprocessing.get_context = _get_context  # type: ignore[assignment]
