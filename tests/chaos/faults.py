"""What each fault of the schedule does. A fault takes its choices from its own random numbers only."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable

from chaos.driver import Driver
from chaos.plan import HEARTBEAT_S
from chaos.recovery import expect_recovered
from chaos.shared_state import Field
from chaos.slot_driver import Violation

SIGNALS = 40
NEED_QUIET = ("fork and check", "stop for long", "restart the store")  # what they are about is there only then
SHORTAGE_ENDS_S = 4.0  # calls that began without descriptors may return until then


def inject(driver: Driver) -> None:
    """Begins the next fault of the schedule, as soon as not too many slots are in trouble."""
    fault, choices = driver.schedule.next()
    if fault in NEED_QUIET or choices.random() < 0.2:
        driver.wait_for_quiet()
        expect_recovered(driver)
        driver.wait(choices.uniform(0, 1))
    if "store" in fault:
        driver.wait_for(lambda: not driver.store_in_trouble, 30, "a store that is well")
        _with_the_store(driver, fault, choices)
        return
    chosen: list[int] = []

    def choose() -> bool:
        slot = driver.choose(choices)
        if slot is not None:
            chosen.append(slot)
        return slot is not None

    driver.wait_for(choose, 60, f"a slot that is well, for: {fault}")
    driver.say(f"{fault}: slot {chosen[0]}")
    _ACTIONS[fault](driver, chosen[0], choices)


def _with_the_store(driver: Driver, fault: str, choices: random.Random) -> None:
    driver.store_in_trouble = True

    def well_again() -> None:
        driver.say("the store is well")
        driver.store_in_trouble = False

    if fault == "stop the store":
        driver.say("the store is stopped")
        driver.store.kill(0, signal.SIGSTOP)

        def go_on() -> None:
            driver.store.kill(0, signal.SIGCONT)
            well_again()

        driver.later(choices.uniform(0.1, 2 * HEARTBEAT_S), go_on)
    else:
        driver.say("the store is killed")
        driver.store.kill(0)

        wait_s = choices.choice([0.0, choices.uniform(0, 3)])
        driver.later(wait_s, lambda: driver.start_store(lambda _: well_again()))


def _time_until_restart_s(choices: random.Random) -> float:
    """How long a slot stays empty: often no time at all, sometimes so long that nobody may reach it any more."""
    return choices.choice([0.0, choices.uniform(0, 2), choices.uniform(7, 9)])


def _kill(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.note_totals(slot)
    driver.kill(slot)
    driver.later(_time_until_restart_s(choices), lambda: driver.revive(slot))


def _kill_two(driver: Driver, slot: int, choices: random.Random) -> None:
    second = driver.choose(choices)
    _kill(driver, slot, choices)
    if second is not None:
        _kill(driver, second, choices)


def _kill_while_stopped(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.note_totals(slot)
    driver.stop(slot)

    def kill() -> None:
        driver.kill(slot)
        driver.later(_time_until_restart_s(choices), lambda: driver.revive(slot))

    driver.later(choices.uniform(0, 2 * HEARTBEAT_S), kill)


def _stop_briefly(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.stop(slot)
    driver.later(choices.uniform(0.05, 0.6 * HEARTBEAT_S), lambda: driver.go_on(slot))


def _stop_for_long(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.stop(slot)
    driver.later(HEARTBEAT_S + choices.uniform(0.5, 3), lambda: driver.go_on(slot))


def _take_descriptors(driver: Driver, slot: int, choices: random.Random) -> None:
    pid, life = driver.workers.pid(slot), driver.state.get(slot, Field.LIFE)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    driver.state.now(slot, Field.SHORT_OF_DESCRIPTORS)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(3, used - choices.randint(0, 5)), before[1]))

    def give_back() -> None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        driver.say(f"slot {slot} has descriptors again")
        driver.later(SHORTAGE_ENDS_S, enough)

    def enough() -> None:
        if driver.state.get(slot, Field.LIFE) == life:
            driver.state.set(slot, Field.SHORT_OF_DESCRIPTORS, 0)
        driver.in_trouble.discard(slot)

    driver.later(choices.uniform(0.5, 4), give_back)


def _lose_stderr(how: str) -> Callable[[Driver, int, random.Random], None]:
    def lose(driver: Driver, slot: int, choices: random.Random) -> None:
        driver.send(slot, lambda _: driver.in_trouble.discard(slot), "lose_stderr", how)

    return lose


def _fork(how: str) -> Callable[[Driver, int, random.Random], None]:
    def fork(driver: Driver, slot: int, choices: random.Random) -> None:
        driver.send(slot, lambda _: driver.in_trouble.discard(slot), "fork_child", how)

    return fork


def _signals(*, raising: bool) -> Callable[[Driver, int, random.Random], None]:
    def send_signals(driver: Driver, slot: int, choices: random.Random) -> None:
        pid, seconds = driver.workers.pid(slot), choices.uniform(1, 3)
        listening = [True]

        def signal_it() -> None:
            if listening[0]:  # otherwise we are late, and it may be gone by now
                os.kill(pid, signal.SIGUSR2)

        def heard(count: int) -> None:
            listening[0] = False
            if count == 0:
                raise Violation(f"slot {slot}: no handler ran")
            driver.say(f"slot {slot}: {count} handlers ran")
            driver.in_trouble.discard(slot)

        driver.send(slot, heard, "take_signals", seconds, raising)
        for _ in range(SIGNALS):
            # Not at once, when no handler is there yet, nor at the end, when it is gone.
            driver.later(choices.uniform(0.3, 0.8 * seconds), signal_it)

    return send_signals


def _leave(how: str) -> Callable[[Driver, int, random.Random], None]:
    def leave(driver: Driver, slot: int, choices: random.Random) -> None:
        def gone(_: None) -> None:
            driver.dismiss(slot)
            driver.later(_time_until_restart_s(choices), lambda: driver.revive(slot))

        driver.note_totals(slot)
        driver.state.now(slot, Field.DYING)
        driver.send(slot, gone, "leave", how)

    return leave


_ACTIONS: dict[str, Callable[[Driver, int, random.Random], None]] = {
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
