"""The documents' configuration classes: fields, and the type check of the C field behind each."""

from __future__ import annotations

from typing import SupportsIndex, overload

from memfabric_hybrid.api import arguments


class Config:
    """Base of the configuration classes, which give every field its default when they are made.

    Slots: a misspelt field is an AttributeError, not a setting without effect.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, int] = {}


class U32:
    """A field with the range of the documents' C type: other types raise TypeError when assigned."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, config: None, owner: type) -> U32: ...
    @overload
    def __get__(self, config: Config, owner: type | None = None) -> int: ...
    def __get__(self, config: Config | None, owner: type | None = None) -> U32 | int:
        return self if config is None else config._values[self._name]

    def __set__(self, config: Config, value: SupportsIndex) -> None:
        config._values[self._name] = arguments.u32(self._name, value)


class Flag:
    """A boolean field; takes what `bool()` takes of ints, refuses text and the like."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, config: None, owner: type) -> Flag: ...
    @overload
    def __get__(self, config: Config, owner: type | None = None) -> bool: ...
    def __get__(self, config: Config | None, owner: type | None = None) -> Flag | bool:
        return self if config is None else bool(config._values[self._name])

    def __set__(self, config: Config, value: bool) -> None:
        if not isinstance(value, int):
            raise TypeError(f"{self._name} must be a bool, not {type(value).__name__}")
        config._values[self._name] = bool(value)
