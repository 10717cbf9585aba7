"""What everything is called inside etcd. Pure.

    /memfabric/INSTANCE/incarnation              a random name; it goes when etcd loses its data
    /memfabric/INSTANCE/recovering               there while ranks that look free may be somebody's (leased)
    /memfabric/INSTANCE/keys/KEY                 the value; a lease means that it is ephemeral, and whose it is
    /memfabric/INSTANCE/ranks/GROUP/RANK         who claimed it (leased), beside its key
    /memfabric/INSTANCE/ranges/NAME/LEASE        one for every holder (leased)
    /memfabric/INSTANCE/rounds/GROUP/ROUND/RANK  one for everybody who waits in a rendezvous (leased)
    /memfabric/INSTANCE/fences/LEASE             there after an endpoint was lost with a transaction in its hands

Groups and range names have their slashes escaped, so that no name is part of another.
"""

from __future__ import annotations

NO_INSTANCE = "~"  # no instance can be called that


class Names:
    """Of one instance: nothing under one `root` is ever seen by participants of another."""

    def __init__(self, instance: str) -> None:
        self.root = f"/memfabric/{instance or NO_INSTANCE}/".encode()
        self.incarnation = self.root + b"incarnation"
        self.recovering = self.root + b"recovering"
        self.keys = self.root + b"keys/"
        self.ranges = self.root + b"ranges/"
        self.rounds = self.root + b"rounds/"

    def key(self, key: str) -> bytes:
        return self.keys + key.encode()

    def key_of(self, name: bytes) -> str:
        return name[len(self.keys) :].decode()

    def fence(self, lease: int) -> bytes:
        return self.root + b"fences/%016x" % lease

    def ranks(self, group: str) -> bytes:
        return self.root + b"ranks/" + _escaped(group) + b"/"

    def rank(self, group: str, rank: int) -> bytes:
        return self.ranks(group) + b"%d" % rank

    def holders(self, range_name: str) -> bytes:
        return self.ranges + _escaped(range_name) + b"/"

    def holder(self, range_name: str, lease: int) -> bytes:
        return self.holders(range_name) + b"%016x" % lease

    def range_of(self, name: bytes) -> str:
        """The range that a holder holds."""
        return _unescaped(name[len(self.ranges) :].rpartition(b"/")[0])

    def round(self, group: str, round: int) -> bytes:
        return self.rounds + _escaped(group) + b"/%d/" % round


def rank_of(name: bytes) -> int:
    """The last part of a rank's or an arrival's name."""
    return int(name.rpartition(b"/")[2])


def _escaped(text: str) -> bytes:
    return text.encode().replace(b"%", b"%25").replace(b"/", b"%2F")


def _unescaped(name: bytes) -> str:
    return name.replace(b"%2F", b"/").replace(b"%25", b"%").decode()
