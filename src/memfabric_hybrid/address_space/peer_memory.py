"""The other ranks' memory in our range: mapped, or reached over the network, while they take part; revoked at once and
unmapped soon when they go.

Threads: any, but what happens to one rank must happen in the order in which it was decided: the group calls everything
here, except `drain` and `is_drained`, under its lock. The native space has its own way of keeping copies and unmapping
apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memfabric_hybrid import _native, logs
from memfabric_hybrid.address_space.join_fact import DataPlace, UcxPlace
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.messages import Share
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.membership.roster import Left
from memfabric_hybrid.store.protection import plain_data

log = logs.get(__name__)


class PeerMemory:
    """`identity` is there if data is encrypted, `ucx` if this process has UCX."""

    def __init__(
        self,
        spec: PoolSpec,
        space: _native.Space,
        identity: _native.TlsIdentity | None = None,
        ucx: _native.UcxContext | None = None,
    ) -> None:
        self._spec = spec
        self._space = space
        self._identity = identity
        self._ucx = ucx
        self._transports: dict[int, tuple[DataPlace, _native.TcpTransport]] = {}  # by rank
        self._ucx_transports: dict[int, tuple[bytes, _native.UcxTransport]] = {}  # by rank, with the worker's address

    @property
    def title(self) -> str:
        """The object's, in sentences."""
        return self._spec.title

    def check_layout(self, rank: int, max_dram: int, max_hbm: int) -> None:
        """InvalidParam when it is not ours."""
        layout = self._spec.layout
        if (max_dram, max_hbm) != (layout.max_dram, layout.max_hbm):
            raise InvalidParam(
                f"{self._spec.title}: rank {rank} was created with max_dram_size {max_dram} and "
                f"max_hbm_size {max_hbm}, rank {self._space.local_rank} with {layout.max_dram} and "
                f"{layout.max_hbm}; all ranks must pass the same"
            )

    def check(self, share: Share, fds: Sequence[int]) -> None:
        """InvalidParam when the share does not fit to our layout, or its descriptors not to it."""
        self.check_layout(share.rank, share.max_dram, share.max_hbm)
        if len(fds) < len(share.segments):
            raise InvalidParam(
                f"{self._spec.title}: rank {share.rank} shows {len(share.segments)} segments in {len(fds)} files"
            )

    def map(self, share: Share, fds: Sequence[int]) -> None:
        """Maps what is new of it, and lets copies there."""
        for fact, fd in zip(share.segments, fds, strict=True):
            if fact.slot_offset >= self._space._allocated(share.rank, fact.tier):
                place = (fact.slot_offset, fact.size_bytes)
                self._space._attach(share.rank, fact.tier, fd, 0, *place, sealed=True)
        self._space._activate(share.rank)

    def reach(self, rank: int, sizes: Mapping[Tier, int], data: DataPlace) -> None:
        """Lets copies go there over the network, as far as it is new. Nobody connects before the first copy.

        Its predecessor's memory has drained already: this waits for nobody.
        """
        place, transport = self._transports.get(rank, (None, None))
        if transport is None or place != data:
            if self._identity is None:
                plain_data.mention("over TCP")
            transport = _native.TcpTransport(data.address, data.memory_id, data.secret, self._identity)
            self._transports[rank] = (data, transport)
        self._attach_remote(rank, sizes, transport)

    def reach_by_ucx(self, rank: int, sizes: Mapping[Tier, int], place: UcxPlace) -> None:
        """The same by UCX. The place has room for these sizes."""
        assert self._ucx is not None, "without it no route is UCX"
        if place.worker_address:
            worker_address, transport = self._ucx_transports.get(rank, (b"", None))
            if transport is None or worker_address != place.worker_address:
                plain_data.mention("by UCX")
                transport = _native.UcxTransport(self._ucx, place.worker_address, place.end.version, place.regions)
                self._ucx_transports[rank] = (place.worker_address, transport)
            else:
                transport.grow(place.regions)
            self._attach_remote(rank, sizes, transport)
        else:
            self._space._activate(rank)

    def _attach_remote(
        self, rank: int, sizes: Mapping[Tier, int], transport: _native.TcpTransport | _native.UcxTransport
    ) -> None:
        for tier, size_bytes in sizes.items():
            present = self._space._allocated(rank, int(tier))
            if size_bytes > present:
                self._space._attach_remote(rank, int(tier), present, size_bytes - present, transport)
        self._space._activate(rank)

    def revoke(self, rank: int, reason: str) -> None:
        """No copy there from now on; what is mapped stays."""
        self._space._revoke(rank, reason)

    def let_go(self, gone: Sequence[Left]) -> bool:
        """Revokes and unmaps; False while running copies keep something, see `collect`."""
        for left in gone:  # first nobody can start a copy, then the memory goes
            self._space._revoke(left.rank, left.reason)
        for left in gone:
            self._transports.pop(left.rank, None)
            self._ucx_transports.pop(left.rank, None)
            self._space._detach(left.rank)
            log.info("%s: rank %d is gone: %s", self._spec.title, left.rank, left.reason)
        return self._space._collect()

    def collect(self) -> bool:
        """Unmaps what running copies have let go of; True when nothing is left."""
        return self._space._collect()

    def drain(self, rank: int) -> None:
        """Waits until no copy is in the memory of that rank's predecessor: under no lock."""
        self._space._drain(rank)

    def is_drained(self, rank: int) -> bool:
        """Whether no copy is there. Does not wait."""
        return self._space._is_drained(rank)
