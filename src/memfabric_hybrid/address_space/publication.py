"""Our part in one object as the store shows it to the others, and the watches that show us theirs.

In a small world everybody follows everybody. In a large one n members that join would cost n² notices, and each of them
n facts; so we follow our own host, which maps our memory and whose memory we map, and the hosts of ranks that somebody
seeks: from the first copy there on we know as much of them as of neighbours. Whoever wants to hear of all says so
(`follow_all`).

Threads: a turn of the pool publishes, watches and retracts; any thread seeks, and asks what is followed. Watches call
back on the store's event thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

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
from memfabric_hybrid.store import FAREWELL_S, MOMENT_S, Watch, WatchUpdate

log = logs.get(__name__)
OnUpdate = Callable[[WatchUpdate, "str | None"], None]  # of all hosts (None), or of one (its key)


class Publication:
    """`data` is where our memory is served to other hosts, `ucx` serves it by UCX as well."""

    def __init__(self, member: Member, spec: PoolSpec, own: OwnMemory, data: DataPlace, ucx: UcxMemory) -> None:
        self.key = join_fact.key(spec.name, member.host, member.rank)
        self._member = member
        self._spec = spec
        self._own = own
        self._data = data
        self._ucx = ucx
        self._wants_all = spec.follows_all
        self._lock = threading.Lock()  # guards the two below; nobody is waited for under it
        self._on_update: OnUpdate | None = None  # while we take part
        self._watches: dict[str | None, Watch] = {}  # by the key of the host; None: of all hosts

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

    def watch(self, on_update: OnUpdate, deadline: Deadline) -> None:
        """The facts of all, or of this host; it has been called once when this returns."""
        self._on_update = on_update
        self._follow(None if self._wants_all else join_fact.host_key(self._member.host), deadline)

    def follow_all(self, deadline: Deadline) -> None:
        """From now on, also after a later `watch`: everybody's facts are wanted. They are there when this returns."""
        self._wants_all = True
        self._follow(None, deadline)

    def seek(self, ranks: Iterable[int], deadline: Deadline) -> None:
        """Returns when the watches have told all that the store knew of these ranks at the call."""
        hosts: set[str] = set()
        if not self.follows(None):
            found = [self._member.host_of(rank, deadline) for rank in ranks]
            hosts = {join_fact.host_key(host) for host in found if host is not None}
        is_new = [self._follow(host, deadline) for host in hosts]
        if not (is_new and all(is_new)):
            self.catch_up(deadline)

    def catch_up(self, deadline: Deadline) -> None:
        """Returns when we have heard all that the store knew at the call. TimedOut: it does not answer in time.

        It tells one participant everything in order, so the first sight of another watch comes behind it.
        """
        self._member.store.watch(self.key, lambda update: None, deadline=deadline).close()

    def _follow(self, host: str | None, deadline: Deadline) -> bool:
        """False if that is done already, or we do not take part."""
        on_update = self._on_update
        if on_update is None or self.follows(host):
            return False
        prefix = join_fact.prefix(self._spec.name, host)
        watch = self._member.store.watch(prefix, lambda update: on_update(update, host), deadline=deadline)
        with self._lock:
            is_late = self._on_update is not on_update or host in self._watches
            needless = [watch] if is_late else []
            if host is None and not is_late:
                needless = list(self._watches.values())
                self._watches.clear()
            if not is_late:
                self._watches[host] = watch
        for one in needless:
            one.close()
        return True

    def follows(self, host: str | None) -> bool:
        """That host, or (None) all of them."""
        return None in self._watches or host in self._watches

    @property
    def is_watching(self) -> bool:
        return bool(self._watches)

    def retract(self, deadline: Deadline) -> None:
        """Undoes both, as far as they were done. Does not fail, and does not wait for a store that is away: neighbours
        hear from us that we leave, and it learns what is still ours when it is back."""
        try:
            farewell = Deadline(min(FAREWELL_S, deadline.extended(MOMENT_S).remaining_s()))
            self._member.store.delete(self.key, deadline=farewell)
        except FabricError as failure:  # it is away, or our key is somebody else's by now
            log.info("%s: the store did not hear that we leave: %s", self._spec.title, failure)
        with self._lock:
            watches, self._watches, self._on_update = self._watches, {}, None
        for watch in watches.values():
            watch.close()
