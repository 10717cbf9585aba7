"""How many descriptors this process may have: links to all ranks of a large host are more than the usual 1024."""

from __future__ import annotations

import resource

from memfabric_hybrid import logs

ENOUGH = 8192  # 1024 ranks: a link each way to all, or, for the store, a few connections of each

_log = logs.get(__name__)


def allow_enough() -> None:
    """Raises the soft limit as far as the hard one lets it; never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= ENOUGH:
        return
    allowed = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    _log.info("this process may have %d descriptors now, %d before; a cluster of 1024 needs %d", allowed, soft, ENOUGH)
