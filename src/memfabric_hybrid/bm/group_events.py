"""What a BigMemory and its pool have to say to each other: whom it may reach, and the program's group-event handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memfabric_hybrid.address_space.pool_owner import PoolOwner
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.bm.enums import BmGroupEvent
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.membership.roster import Joined, Left
from memfabric_hybrid.transports.routes import Route, Rules, route_between
from memfabric_hybrid.transports.ucx_ends import UcxEnd

GroupEventHandler = Callable[[int, BmGroupEvent], Any]


class GroupEvents(PoolOwner):
    def __init__(self, spec: PoolSpec, rules: Rules, own_ucx: UcxEnd) -> None:
        self.handler = callbacks.Revocable[[int, BmGroupEvent]]()
        self.handler_name = f"the group-event handler of {spec.title}"
        self._spec = spec
        self._rules = rules
        self._own_ucx = own_ucx

    def route(self, tag: str, op_type: int, ucx: UcxEnd, *, same_host: bool) -> Route:
        own = self._spec
        allowed = own.op_type & op_type or own.op_type
        return route_between(
            own.tag, tag, allowed, self._rules, same_host=same_host, own_ucx=self._own_ucx, peer_ucx=ucx
        )

    def group_changed(self, change: Joined | Left) -> None:
        event = BmGroupEvent.JOIN_EVENT if isinstance(change, Joined) else BmGroupEvent.LEAVE_EVENT
        self.handler.run(self.handler_name, change.rank, event)

    def change_handler(self, handler: GroupEventHandler | None, deadline: Deadline) -> None:
        """When it returns, the one before runs no more, except where this was called. TimedOut: it still does."""
        self.handler.set(handler)
        self.handler.settle(self.handler_name, deadline)
