"""`OffloadConfig`: which memory `offload.initialize` provides, and for whom."""

from __future__ import annotations

from typing import SupportsIndex

from memfabric_hybrid.api import arguments
from memfabric_hybrid.api.config_fields import U32, U64, Config
from memfabric_hybrid.offload.scene import Scene

OFFLOAD_FLAG_GIANT_PAGE = 1 << 0


class OffloadConfig(Config):
    """Settings for `offload.initialize`; every field has the documented default, and may be given here or set later.

    Attributes:
        device_id: accepted for programs that have accelerators; without a store URL it chooses the store's port.
        reserve_size: bytes of addresses for this process's memory, rounded up to 1 GiB, at most 2 TiB; 0: as many as
            `alloc_size`. SHARED: the same on every rank.
        alloc_size: bytes of memory that are there at once, rounded up to 2 MiB; more is added when it is needed, up to
            the reserved size. May be 0, and different on every rank.
        size: the older name; sets both sizes, reads the reserved one.
        scene: `Scene.LOCAL` or `Scene.SHARED`.
        world_size, rank_id: SHARED: how many ranks there are, and which one this process is; rank 0 runs the store.
        store_url: SHARED: "tcp://host:port", the same on every rank. "": that of the environment; and if there is none
            and all ranks are on one host, port 8500 + device_id // world_size there.
        local_world_size: SHARED: how many of the ranks are on this host; 0: all of them.
        flags: OFFLOAD_FLAG_GIANT_PAGE is accepted: huge pages are used wherever the machine has free ones.
        init_timeout: SHARED: seconds until the store must have answered and all ranks must have come, 1..4294967295.
            Beyond the original interface.
    """

    device_id = U32()
    reserve_size = U64()
    alloc_size = U64()
    world_size = U32()
    rank_id = U32()
    local_world_size = U32()
    flags = U32()
    init_timeout = U32()

    __slots__ = ("_scene", "_store_url")

    def __init__(
        self,
        *,
        device_id: SupportsIndex = 0,
        reserve_size: SupportsIndex = 0,
        alloc_size: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        rank_id: SupportsIndex = 0,
        scene: SupportsIndex = Scene.LOCAL,
        store_url: str = "",
        local_world_size: SupportsIndex = 0,
        flags: SupportsIndex = 0,
        init_timeout: SupportsIndex = 120,
    ) -> None:
        super().__init__()
        self.device_id = device_id
        self.reserve_size = reserve_size
        self.alloc_size = alloc_size
        self.world_size = world_size
        self.rank_id = rank_id
        self.scene = scene
        self.store_url = store_url
        self.local_world_size = local_world_size
        self.flags = flags
        self.init_timeout = init_timeout

    @property
    def scene(self) -> Scene:
        return self._scene

    @scene.setter
    def scene(self, value: SupportsIndex) -> None:
        number = arguments.integer("scene", value)
        try:
            self._scene = Scene(number)
        except ValueError:
            raise TypeError(f"scene is {number}, expected 0 (LOCAL) or 1 (SHARED)") from None

    @property
    def store_url(self) -> str:
        return self._store_url

    @store_url.setter
    def store_url(self, value: str) -> None:
        self._store_url = arguments.text("store_url", value)

    @property
    def size(self) -> int:
        return self.reserve_size

    @size.setter
    def size(self, value: SupportsIndex) -> None:
        size_bytes = arguments.u64("size", value)
        self.reserve_size = self.alloc_size = size_bytes

    def __repr__(self) -> str:
        fields = ("device_id", "reserve_size", "alloc_size", "world_size", "rank_id", "scene", "store_url",
                  "local_world_size", "flags", "init_timeout")  # fmt: skip
        return f"OffloadConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"
