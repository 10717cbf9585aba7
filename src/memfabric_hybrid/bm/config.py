"""`BmConfig`: how to initialise Big Memory."""

from __future__ import annotations

from typing import SupportsIndex

from memfabric_hybrid.api import arguments
from memfabric_hybrid.api.config_fields import U32, Config, Flag
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.transports import nic


class BmConfig(Config):
    """Settings for `bm.initialize`; every field has the documented default, and may be given here or set later.

    Attributes:
        init_timeout, create_timeout, operation_timeout: seconds, 1..4294967295 (0 makes initialize return -2000).
        start_store: run the config store in this process where that is its part (rank 0, or whoever is first).
        start_store_only: run the config store and nothing else.
        dynamic_world_size: accepted; members may always come and go.
        unified_address_space: must stay True.
        auto_ranking: let the store hand out the lowest free rank; otherwise `rank_id` is taken.
        rank_id: this process's rank when `auto_ranking` is False.
        flags: reserved.
    """

    init_timeout = U32()
    create_timeout = U32()
    operation_timeout = U32()
    start_store = Flag()
    start_store_only = Flag()
    dynamic_world_size = Flag()
    unified_address_space = Flag()
    auto_ranking = Flag()
    rank_id = U32()
    flags = U32()

    __slots__ = ("_nic",)

    def __init__(
        self,
        *,
        init_timeout: SupportsIndex = 120,
        create_timeout: SupportsIndex = 120,
        operation_timeout: SupportsIndex = 120,
        start_store: bool = True,
        start_store_only: bool = False,
        dynamic_world_size: bool = False,
        unified_address_space: bool = True,
        auto_ranking: bool = True,
        rank_id: SupportsIndex = 65535,
        flags: SupportsIndex = 0,
    ) -> None:
        super().__init__()
        self.init_timeout = init_timeout
        self.create_timeout = create_timeout
        self.operation_timeout = operation_timeout
        self.start_store = start_store
        self.start_store_only = start_store_only
        self.dynamic_world_size = dynamic_world_size
        self.unified_address_space = unified_address_space
        self.auto_ranking = auto_ranking
        self.rank_id = rank_id
        self.flags = flags
        self._nic = ""

    def set_nic(self, nic: str) -> None:
        """Where other hosts reach this one for data: "tcp://ip[/mask]:port"; validated by `initialize`.

        With a mask it is this machine's own address in that network. The first free port from `port` on is taken, so
        that all processes of a host may say the same. Without it: the address towards the store, and any port.
        """
        self._nic = arguments.text("nic", nic)

    def _asked(self) -> dict[str, object]:
        """What decides something: a rank that the store gives is nobody's wish."""
        asked = super()._asked() | {"nic": self._nic}
        return {name: value for name, value in asked.items() if name != "rank_id" or not self.auto_ranking}

    def _validate(self, world_size: int) -> None:
        """InvalidParam for the first value outside its limits."""
        for name in ("init_timeout", "create_timeout", "operation_timeout"):
            if getattr(self, name) == 0:
                raise InvalidParam(f"{name} is 0 s, expected 1..{arguments.U32_MAX}")
        if not self.unified_address_space:
            raise InvalidParam("unified_address_space is False; only one unified address space is supported")
        if not self.auto_ranking and self.rank_id >= world_size:
            raise InvalidParam(f"rank_id is {self.rank_id}, expected 0..{world_size - 1} (world_size - 1)")
        if not self._nic:
            return
        nic.parse(self._nic)

    def __repr__(self) -> str:
        fields = ("init_timeout", "create_timeout", "operation_timeout", "start_store", "start_store_only",
                  "auto_ranking", "rank_id")  # fmt: skip
        return f"BmConfig({', '.join(f'{name}={getattr(self, name)}' for name in fields)})"
