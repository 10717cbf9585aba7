"""What every request of one participant needs: the way to etcd, the names there, the lease that is its session; and its
transactions, none of which is ever carried out late.

An endpoint that is lost with a transaction in its hands (stopped, cut off) may carry it out when nobody expects it any
more, after what followed. So every transaction asks whether our *fence* is as we know it, and before one is repeated
elsewhere the fence is moved: what is still under way with the old one fails.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected, TimedOut
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.complaints import LeaseExists
from memfabric_hybrid.store.etcd.gateway.gateway import ANSWER_S, UNREPEATED_ANSWER_S, Gateway, OutcomeUnknown
from memfabric_hybrid.store.etcd.names import Names

FENCE_S = 3600  # longer than any endpoint keeps a request


class Scope:
    def __init__(self, gateway: Gateway, session: bytes) -> None:
        self.gateway = gateway
        # A lease can be given its number: the same one again after it was lost, so that what we own is always ours.
        self.lease = int.from_bytes(session[:8], "big") >> 1 or 1
        self.fence = 0  # the revision at which we moved it last; 0: never. It moves when something was sent twice
        self.rename()

    def rename(self) -> None:
        """After the URL has changed."""
        self.names = Names(self.gateway.endpoints.url.instance)

    def transact(
        self,
        compare: list[api.Body],
        success: list[api.Body],
        failure: list[api.Body],
        deadline: Deadline,
        *,
        repeatable: bool = True,
    ) -> api.Outcome:
        """As `Gateway.ask`. Repeated when an endpoint is lost, unless that is not the same as once: NotConnected."""
        while True:
            name, fence = self.names.fence(self.lease), self.fence
            body = api.transaction(
                [*compare, api.is_unchanged(name, fence)], success, [*failure, api.read(api.of_key(name))]
            )
            try:
                answer_s = ANSWER_S if repeatable else UNREPEATED_ANSWER_S
                outcome = self.gateway.ask(api.TXN, body, api.Outcome, deadline, repeatable=False, answer_s=answer_s)
            except OutcomeUnknown as lost:
                if not repeatable:
                    raise self._unknown(lost) from None
                self._move_fence(deadline)
                continue
            if outcome.succeeded:
                return outcome
            found = outcome.found(len(failure))
            now = found[0].mod_revision if found else 0
            if now == fence:
                return outcome
            self.fence = now  # another thread has moved it, or etcd has lost its data
            self.check_time(deadline, "a transaction")

    def _unknown(self, lost: OutcomeUnknown) -> NotConnected:
        return NotConnected(
            f"store {self.gateway.endpoints.url} was lost ({lost}) after a request was sent that must not be repeated: "
            "it may or may not have been carried out; read the key before trying again"
        )

    def _move_fence(self, deadline: Deadline) -> None:
        timer = secrets.randbits(62) or 1
        with suppress(LeaseExists):  # from an attempt whose answer was lost
            self.gateway.ask(api.GRANT, {"TTL": FENCE_S, "ID": timer}, api.Lease, deadline)
        moved = api.transaction([], [api.put(self.names.fence(self.lease), b"", timer)], [])
        self.fence = self.gateway.ask(api.TXN, moved, api.Outcome, deadline).header.revision

    def check_time(self, deadline: Deadline, doing: str) -> None:
        """For what has to be tried again because others were quicker."""
        if deadline.expired:
            url = self.gateway.endpoints.url
            raise TimedOut(f"store {url}: {doing} did not succeed within {deadline.timeout_s:g} s, others were quicker")
