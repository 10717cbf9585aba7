"""Which frames a device loses, as a program for the kernel: those of some senders, and some at random.

It is classic BPF in the words of `tc filter … bpf bytecode`, because every kernel has that. Usually `netem` loses
frames, but many kernels are built without it, and what it drops on its own host TCP hears of. Here a lost frame counts
as sent (TC_ACT_STOLEN), as on a real cable.
"""

from __future__ import annotations

from collections.abc import Collection

_LOAD_WORD, _LOAD_HALF, _IF_EQUAL, _IF_NOT_LESS, _RETURN = 0x20, 0x28, 0x15, 0x35, 0x06
_SOURCE_FIRST_4, _SOURCE_LAST_2 = 6, 10  # where the sender's address is in an Ethernet frame
_RANDOM = 0xFFFFF000 + 56  # instead of a place in the frame: 32 random bits
_LOSE, _NEXT_FILTER = 4, 0xFFFFFFFF

Instruction = tuple[int, int, int, int]  # code, how many to skip if true, if false, operand


def bytecode(senders: Collection[bytes], loss_percent: float) -> str:
    """Loses every frame of these senders (6 bytes each), and of all others the given part."""
    if not 0 <= loss_percent <= 100:
        raise ValueError(f"a loss of {loss_percent} percent: from 0 to 100 are possible")
    program: list[Instruction] = []
    for sender in senders:
        program += [
            (_LOAD_WORD, 0, 0, _SOURCE_FIRST_4),
            (_IF_EQUAL, 0, 3, int.from_bytes(sender[:4], "big")),
            (_LOAD_HALF, 0, 0, _SOURCE_LAST_2),
            (_IF_EQUAL, 0, 1, int.from_bytes(sender[4:], "big")),
            (_RETURN, 0, 0, _LOSE),
        ]
    if loss_percent > 0:
        kept_below = int((1 - loss_percent / 100) * 2**32)
        program += [
            (_LOAD_WORD, 0, 0, _RANDOM),
            (_IF_NOT_LESS, 0, 1, min(kept_below, 2**32 - 1)),
            (_RETURN, 0, 0, _LOSE),
        ]
    program.append((_RETURN, 0, 0, _NEXT_FILTER))
    return f"{len(program)}," + ",".join(" ".join(map(str, instruction)) for instruction in program)
