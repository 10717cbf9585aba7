"""Which keys are members' and whose: nobody else writes them, whoever is connected. Pure.

The members of a kind claim the ranks of the group `<kind>/ranks`. What they say about themselves stands under
`<kind>/<object>/<host>/<rank>`, and only the session that holds that rank writes there; what they share stands under
`<kind>-<anything>/…`, and only sessions with a rank of the kind write there. So one stray key cannot split a pool, and
nobody has to guess whether a key is a member's. All other keys are anybody's.
"""

from __future__ import annotations

from typing import NamedTuple

from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store.limits import KINDS, is_kept, shown
from memfabric_hybrid.store.state.ranks import RankTable

ANY_RANK, NO_RANK = -1, -2
GROUPS = {kind: f"{kind}/ranks" for kind in KINDS}  # whose ranks are keys as well
_RANKS = "ranks"
_FACT_PARTS, _RANK_PARTS = 4, 3  # of keys that belong to one rank: of what it says about itself, and of the rank


class Keeper(NamedTuple):
    """Who writes a key: the session that has this rank of the group, or any rank of it, or nobody at all."""

    group: str
    rank: int


def keeper_of(key: str) -> Keeper | None:
    """None: the key is anybody's."""
    if not is_kept(key):
        return None
    kind = _kind(key)
    if key[len(kind)] == "-":
        return Keeper(GROUPS[kind], ANY_RANK)
    parts = key.split("/")
    is_one_ranks = len(parts) == (_RANK_PARTS if parts[1] == _RANKS else _FACT_PARTS)
    return Keeper(GROUPS[kind], _rank(parts[-1]) if is_one_ranks else NO_RANK)


def group_of(name: str) -> str | None:
    """The group whose members alone have such keys, ranges and rendezvous. None: anybody has."""
    return GROUPS[_kind(name)] if is_kept(name) else None


def check_writer(ranks: RankTable, key: str, session: bytes, *, ephemeral: bool = True) -> None:
    """InvalidParam unless this session may write the key. Members' keys vanish with them, so they are ephemeral."""
    keeper = keeper_of(key)
    if keeper is None:
        return
    if keeper.rank == ANY_RANK:
        allowed = ranks.is_member(keeper.group, session)
    else:
        holder = ranks.holder(keeper.group, keeper.rank) if keeper.rank >= 0 else None
        allowed = holder is not None and holder.session == session
    if not allowed:
        raise InvalidParam(
            f"key {shown(key)} is a member's, and this process does not hold {_named(keeper)}; "
            f"names that do not begin with {', '.join(KINDS)} are free for all"
        )
    if not ephemeral:
        raise InvalidParam(f"key {shown(key)} is a member's and must vanish with it: it has to be ephemeral")


def check_member(ranks: RankTable, name: str, session: bytes, what: str) -> None:
    """InvalidParam unless this session may use a range or a rendezvous of that name."""
    if is_kept(name) and not ranks.is_member(GROUPS[_kind(name)], session):
        raise InvalidParam(f"{what} {shown(name)} is the members', and this process holds no rank of {_kind(name)}")


def _kind(name: str) -> str:
    return next(kind for kind in KINDS if name.startswith((f"{kind}/", f"{kind}-")))


def _rank(text: str) -> int:
    """As it is written by its owner, and in no other way."""
    is_plain = text.isascii() and text.isdecimal() and len(text) <= 5 and (text == "0" or text[0] != "0")
    return int(text) if is_plain else NO_RANK


def _named(keeper: Keeper) -> str:
    if keeper.rank == ANY_RANK:
        return f"a rank of {shown(keeper.group)}"
    return f"rank {keeper.rank} of {shown(keeper.group)}" if keeper.rank >= 0 else "what such a key would belong to"
