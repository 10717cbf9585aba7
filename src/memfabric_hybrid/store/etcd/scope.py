"""What every request of one participant needs: the way to etcd, the names there, and the lease that is its session."""

from __future__ import annotations

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import TimedOut
from memfabric_hybrid.store.etcd.gateway import Gateway
from memfabric_hybrid.store.etcd.names import Names


class Scope:
    def __init__(self, gateway: Gateway, session: bytes) -> None:
        self.gateway = gateway
        # A lease can be given its number: the same one again after it was lost, so that what we own is always ours.
        self.lease = int.from_bytes(session[:8], "big") >> 1 or 1
        self.rename()

    def rename(self) -> None:
        """After the URL has changed."""
        self.names = Names(self.gateway.endpoints.url.instance)

    def check_time(self, deadline: Deadline, doing: str) -> None:
        """For what has to be tried again because others were quicker."""
        if deadline.expired:
            url = self.gateway.endpoints.url
            raise TimedOut(f"store {url}: {doing} did not succeed within {deadline.timeout_s:g} s, others were quicker")
