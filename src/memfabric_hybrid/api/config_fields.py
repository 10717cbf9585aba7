"""The documents' configuration classes: fields, and the type check of the C field behind each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, SupportsIndex, overload

from memfabric_hybrid.api import arguments

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self


class Config:
    """Base of the configuration classes, which give every field its default when they are made.

    Slots: a misspelt field is an AttributeError, not a setting without effect.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, int] = {}

    def _asked(self) -> dict[str, object]:
        """Every field as it is now."""
        return dict(self._values)


class _Unsigned:
    """A field with the range of the documents' C type: other types raise TypeError when assigned."""

    LIMIT: int

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, config: None, owner: type) -> Self: ...
    @overload
    def __get__(self, config: Config, owner: type | None = None) -> int: ...
    def __get__(self, config: Config | None, owner: type | None = None) -> Self | int:
        return self if config is None else config._values[self._name]

    def __set__(self, config: Config, value: SupportsIndex) -> None:
        config._values[self._name] = arguments.unsigned(self._name, value, self.LIMIT)


class U32(_Unsigned):
    LIMIT = arguments.U32_MAX


class U64(_Unsigned):
    LIMIT = arguments.U64_MAX


def _is_numpys(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.bool_)


class Flag:
    """A boolean field; takes ints and numpy's booleans, refuses text and the like."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, config: None, owner: type) -> Flag: ...
    @overload
    def __get__(self, config: Config, owner: type | None = None) -> bool: ...
    def __get__(self, config: Config | None, owner: type | None = None) -> Flag | bool:
        return self if config is None else bool(config._values[self._name])

    def __set__(self, config: Config, value: bool | np.bool_) -> None:
        if not isinstance(value, int) and not _is_numpys(value):
            raise TypeError(f"{self._name} must be a bool, not {type(value).__name__}")
        config._values[self._name] = bool(value)
