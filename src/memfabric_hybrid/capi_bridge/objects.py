"""The objects of C programs by their handles: this is what keeps them alive."""

from __future__ import annotations

from typing import Generic, TypeVar

from memfabric_hybrid.errors import InvalidParam

T = TypeVar("T")


class Objects(Generic[T]):
    """Of one kind, which `kind` names in sentences. Any thread: each call is one operation of a dict."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._by_handle: dict[int, T] = {}

    def add(self, handle: int, made: T) -> None:
        self._by_handle[handle] = made

    def get(self, handle: int) -> T:
        found = self._by_handle.get(handle)
        if found is None:
            raise InvalidParam(f"{handle:#x} is no handle of a {self._kind}: it was destroyed, or never was one")
        return found

    def remove(self, handle: int) -> None:
        self._by_handle.pop(handle, None)

    def take_all(self) -> list[T]:
        taken = list(self._by_handle.values())
        self._by_handle.clear()
        return taken
