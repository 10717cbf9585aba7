"""What each card of the deck does. A mishap takes its choices from its own random numbers only."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable

from chaos.board import Field
from chaos.plan import HEARTBEAT_S
from chaos.referee import Referee, Violation
from chaos.wholeness import expect_whole

SIGNALS = 40
NEED_PEACE = ("fork and check", "stop for long", "restart the store")  # what they are about is there only then
SHORTAGE_ENDS_S = 4.0  # calls that began without descriptors may return until then


def play(referee: Referee) -> None:
    """Deals one card and begins what it says, as soon as not too many are in trouble."""
    card, choices = referee.deck.deal()
    if card in NEED_PEACE or choices.random() < 0.2:
        referee.wait_for_peace()
        expect_whole(referee)
        referee.wait(choices.uniform(0, 1))
    if "store" in card:
        referee.wait_for(lambda: not referee.store_in_trouble, 30, "a store that is well")
        _with_the_store(referee, card, choices)
        return
    chosen: list[int] = []

    def choose() -> bool:
        slot = referee.choose(choices)
        if slot is not None:
            chosen.append(slot)
        return slot is not None

    referee.wait_for(choose, 60, f"a slot that is well, for: {card}")
    referee.say(f"{card}: slot {chosen[0]}")
    _ACTIONS[card](referee, chosen[0], choices)


def _with_the_store(referee: Referee, card: str, choices: random.Random) -> None:
    referee.store_in_trouble = True

    def well_again() -> None:
        referee.say("the store is well")
        referee.store_in_trouble = False

    if card == "stop the store":
        referee.say("the store is stopped")
        referee.store.kill(0, signal.SIGSTOP)

        def go_on() -> None:
            referee.store.kill(0, signal.SIGCONT)
            well_again()

        referee.later(choices.uniform(0.1, 2 * HEARTBEAT_S), go_on)
    else:
        referee.say("the store is killed")
        referee.store.kill(0)

        wait_s = choices.choice([0.0, choices.uniform(0, 3)])
        referee.later(wait_s, lambda: referee.start_store(lambda _: well_again()))


def _rest_of_the_dead(choices: random.Random) -> float:
    """How long a slot stays empty: often no time at all, sometimes so long that nobody may reach it any more."""
    return choices.choice([0.0, choices.uniform(0, 2), choices.uniform(7, 9)])


def _kill(referee: Referee, slot: int, choices: random.Random) -> None:
    referee.note_totals(slot)
    referee.kill(slot)
    referee.later(_rest_of_the_dead(choices), lambda: referee.revive(slot))


def _kill_two(referee: Referee, slot: int, choices: random.Random) -> None:
    second = referee.choose(choices)
    _kill(referee, slot, choices)
    if second is not None:
        _kill(referee, second, choices)


def _kill_while_stopped(referee: Referee, slot: int, choices: random.Random) -> None:
    referee.note_totals(slot)
    referee.stop(slot)

    def kill() -> None:
        referee.kill(slot)
        referee.later(_rest_of_the_dead(choices), lambda: referee.revive(slot))

    referee.later(choices.uniform(0, 2 * HEARTBEAT_S), kill)


def _stop_briefly(referee: Referee, slot: int, choices: random.Random) -> None:
    referee.stop(slot)
    referee.later(choices.uniform(0.05, 0.6 * HEARTBEAT_S), lambda: referee.go_on(slot))


def _stop_for_long(referee: Referee, slot: int, choices: random.Random) -> None:
    referee.stop(slot)
    referee.later(HEARTBEAT_S + choices.uniform(0.5, 3), lambda: referee.go_on(slot))


def _take_descriptors(referee: Referee, slot: int, choices: random.Random) -> None:
    pid, life = referee.workers.pid(slot), referee.board.get(slot, Field.LIFE)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    referee.board.now(slot, Field.SHORT_OF_DESCRIPTORS)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(3, used - choices.randint(0, 5)), before[1]))

    def give_back() -> None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        referee.say(f"slot {slot} has descriptors again")
        referee.later(SHORTAGE_ENDS_S, enough)

    def enough() -> None:
        if referee.board.get(slot, Field.LIFE) == life:
            referee.board.set(slot, Field.SHORT_OF_DESCRIPTORS, 0)
        referee.in_trouble.discard(slot)

    referee.later(choices.uniform(0.5, 4), give_back)


def _lose_stderr(how: str) -> Callable[[Referee, int, random.Random], None]:
    def lose(referee: Referee, slot: int, choices: random.Random) -> None:
        referee.send(slot, lambda _: referee.in_trouble.discard(slot), "lose_stderr", how)

    return lose


def _fork(how: str) -> Callable[[Referee, int, random.Random], None]:
    def fork(referee: Referee, slot: int, choices: random.Random) -> None:
        referee.send(slot, lambda _: referee.in_trouble.discard(slot), "fork_child", how)

    return fork


def _signals(*, raising: bool) -> Callable[[Referee, int, random.Random], None]:
    def send_signals(referee: Referee, slot: int, choices: random.Random) -> None:
        pid, seconds = referee.workers.pid(slot), choices.uniform(1, 3)
        listening = [True]

        def signal_it() -> None:
            if listening[0]:  # otherwise we are late, and it may be gone by now
                os.kill(pid, signal.SIGUSR2)

        def heard(count: int) -> None:
            listening[0] = False
            if count == 0:
                raise Violation(f"slot {slot}: no handler ran")
            referee.say(f"slot {slot}: {count} handlers ran")
            referee.in_trouble.discard(slot)

        referee.send(slot, heard, "take_signals", seconds, raising)
        for _ in range(SIGNALS):
            # Not at once, when no handler is there yet, nor at the end, when it is gone.
            referee.later(choices.uniform(0.3, 0.8 * seconds), signal_it)

    return send_signals


def _leave(how: str) -> Callable[[Referee, int, random.Random], None]:
    def leave(referee: Referee, slot: int, choices: random.Random) -> None:
        def gone(_: None) -> None:
            referee.dismiss(slot)
            referee.later(_rest_of_the_dead(choices), lambda: referee.revive(slot))

        referee.note_totals(slot)
        referee.board.now(slot, Field.DYING)
        referee.send(slot, gone, "leave", how)

    return leave


_ACTIONS: dict[str, Callable[[Referee, int, random.Random], None]] = {
    "kill": _kill,
    "kill two": _kill_two,
    "kill while stopped": _kill_while_stopped,
    "stop briefly": _stop_briefly,
    "stop for long": _stop_for_long,
    "take descriptors": _take_descriptors,
    "close standard error": _lose_stderr("close"),
    "break standard error": _lose_stderr("break"),
    "signals that run": _signals(raising=False),
    "signals that raise": _signals(raising=True),
    "fork and check": _fork("check"),
    "fork and use anew": _fork("anew"),
    "leave": _leave("clean"),
    "leave while busy": _leave("busy"),
}
