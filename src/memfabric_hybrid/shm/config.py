"""`ShmConfig`: how to initialise Share Memory."""

from __future__ import annotations

from typing import SupportsIndex

from memfabric_hybrid.api import arguments
from memfabric_hybrid.api.config_fields import U32, Config, Flag
from memfabric_hybrid.errors import InvalidParam


class ShmConfig(Config):
    """Settings for `shm.initialize`; every field has the documented default, and may be given here or set later.

    Attributes:
        init_timeout: seconds until the store must have answered, 1..4294967295 (0 makes initialize return -2000).
        create_timeout: seconds until all ranks must have created an object.
        operation_timeout: seconds until all ranks must have arrived in a barrier or all-gather.
        start_store: rank 0 runs the config store; the others never do.
        flags: reserved.
    """

    init_timeout = U32()
    create_timeout = U32()
    operation_timeout = U32()
    start_store = Flag()
    flags = U32()

    __slots__ = ()

    def __init__(
        self,
        *,
        init_timeout: SupportsIndex = 120,
        create_timeout: SupportsIndex = 120,
        operation_timeout: SupportsIndex = 120,
        start_store: bool = True,
        flags: SupportsIndex = 0,
    ) -> None:
        super().__init__()
        self.init_timeout = init_timeout
        self.create_timeout = create_timeout
        self.operation_timeout = operation_timeout
        self.start_store = start_store
        self.flags = flags

    def _validate(self) -> None:
        """InvalidParam for the first value outside its limits."""
        for name in ("init_timeout", "create_timeout", "operation_timeout"):
            if getattr(self, name) == 0:
                raise InvalidParam(f"{name} is 0 s, expected 1..{arguments.U32_MAX}")

    def __repr__(self) -> str:
        fields = ("init_timeout", "create_timeout", "operation_timeout", "start_store", "flags")
        return f"ShmConfig({', '.join(f'{name}={getattr(self, name)}' for name in fields)})"
