"""The enums of the interface: numbers that print as their names, in every version of Python.

Programs put them into their logs: `str()` and f-strings give "BmCopyType.H2G". With a format (`:#x`) one is a number.
"""

from __future__ import annotations

from enum import Enum, Flag, IntEnum, IntFlag


class PublicEnum(IntEnum):
    """One of several choices."""

    __str__ = Enum.__str__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


class PublicFlag(IntFlag):
    """Bits, which may be or-ed."""

    __str__ = Flag.__str__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)
