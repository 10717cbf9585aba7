"""Our part in one object as the store shows it to the others, and the watch that shows us theirs.

Threads: a turn of the pool; `is_watching` any. The watch calls back on the store's event thread.
"""

from __future__ import annotations

import os

from memfabric_hybrid import logs
from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.address_space.join_fact import DataPlace, JoinFact
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.ucx_memory import UcxMemory
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError
from memfabric_hybrid.membership.member import Member
from memfabric_hybrid.membership.roster import Stamp
from memfabric_hybrid.store import FAREWELL_S, MOMENT_S, Watch, WatchCallback

log = logs.get(__name__)


class Publication:
    """`data` is where our memory is served to other hosts, `ucx` serves it by UCX as well."""

    def __init__(self, member: Member, spec: PoolSpec, own: OwnMemory, data: DataPlace, ucx: UcxMemory) -> None:
        self.key = join_fact.key(spec.name, member.rank)
        self._member = member
        self._spec = spec
        self._own = own
        self._data = data
        self._ucx = ucx
        self._watch: Watch | None = None

    def publish(self, stamp: Stamp, deadline: Deadline) -> None:
        """Again when our memory has grown."""
        member, spec = self._member, self._spec
        fact = JoinFact(
            *stamp,
            member.host,
            os.getpid(),
            self._own.size_bytes(Tier.DRAM),
            self._own.size_bytes(Tier.HBM),
            member.exchange_name,
            member.secret,
            spec.layout.max_dram,
            spec.layout.max_hbm,
            spec.tag,
            spec.op_type,
            self._data,
            self._ucx.serve(),
        )
        member.store.set(self.key, join_fact.encode(fact), deadline=deadline, ephemeral=True)

    def watch(self, callback: WatchCallback, deadline: Deadline) -> None:
        """Everybody's facts; the callback has run once when this returns."""
        self._watch = self._member.store.watch(f"{self._spec.name}/", callback, deadline=deadline)

    def catch_up(self, deadline: Deadline) -> None:
        """Returns when the watch has told all that the store knew at the call.

        The store tells one participant everything in order, so the first sight of another watch comes behind it.
        """
        self._member.store.watch(self.key, lambda update: None, deadline=deadline).close()

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    def retract(self, deadline: Deadline) -> None:
        """Undoes both, as far as they were done. Does not fail, and does not wait for a store that is away: neighbours
        hear from us that we leave, and it will not be told again."""
        try:
            farewell = Deadline(min(FAREWELL_S, deadline.extended(MOMENT_S).remaining_s()))
            self._member.store.delete(self.key, deadline=farewell)
        except FabricError as failure:  # it is away, or our key is somebody else's by now
            log.info("%s: the store did not hear that we leave: %s", self._spec.title, failure)
        if self._watch is not None:
            self._watch.close()
            self._watch = None
