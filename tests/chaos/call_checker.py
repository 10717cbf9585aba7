"""Every call of a worker is made through here: counted, timed against its limit, its code and its sentence checked.

One `CheckedCalls` per thread and no locks: calls may be interrupted by exceptions at any point.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import memfabric_hybrid as mf
from chaos.event_log import EventLog
from chaos.plan import SLACK_S
from chaos.starvation import StarvationMeter

SHORTAGE = (-2001, -2002, -2004, -2014)  # what any call may say while its process gets no descriptors
NEIGHBOURS_SHORTAGE = (-2002, -2004)  # while another one gets none
MOST_FAILURES = 20_000  # that are kept
RAISED = -9000  # a call that raises instead of returning codes did so, in the documented way


class RunningCall(NamedTuple):
    """A call that has not returned."""

    kind: str
    began: float
    starved_before_s: float
    limit_s: float


class FailedCall(NamedTuple):
    """A call that has returned a code, which may be right or wrong: whoever knows what has happened judges."""

    kind: str
    towards: int | None  # the slot that it was about, if it was about one
    began: float
    ended: float
    code: int
    sentence: str


class CallChecker:
    """The calls of all threads of this process."""

    def __init__(
        self, event_log: EventLog, starvation: StarvationMeter, shortage: Callable[[], Collection[int]]
    ) -> None:
        self.event_log = event_log
        self.shortage = shortage  # what calls may say now because somebody has no descriptors
        self.starvation = starvation
        self.all_calls: list[CheckedCalls] = []
        self.failures: deque[FailedCall] = deque(maxlen=MOST_FAILURES)
        self.ending = False  # from now on calls may fail as they like: their objects are being taken away
        starvation.look = self._look_for_hangs

    def open(self, name: str) -> CheckedCalls:
        calls = CheckedCalls(self, name)
        self.all_calls.append(calls)
        return calls

    def totals(self) -> dict[str, Any]:
        """For the driver: successes and failures by kind, the slowest call of each, the last success towards each."""
        done: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        slowest_s: dict[str, float] = {}
        reached: dict[tuple[str, int], float] = {}
        for calls in list(self.all_calls):
            done.update(dict(calls.done))
            failed.update(dict(calls.failed))
            for kind, seconds in list(calls.slowest_s.items()):
                slowest_s[kind] = max(slowest_s.get(kind, 0.0), seconds)
            for target, when in list(calls.reached.items()):
                reached[target] = max(reached.get(target, 0.0), when)
        return {"done": dict(done), "failed": dict(failed), "slowest_s": slowest_s, "reached": reached}

    def _look_for_hangs(self) -> None:
        now = time.monotonic()
        for calls in list(self.all_calls):
            call = calls.running
            if call is None or self.ending or calls.told is call:
                continue
            starved_s = self.starvation.starved_s - call.starved_before_s
            if now - call.began - starved_s > call.limit_s + 2 * SLACK_S:
                calls.told = call
                self.event_log.violation(
                    f"{calls.name}: {call.kind} has not returned for {now - call.began:.2f} s, {starved_s:.2f} s of "
                    f"it starved; its limit is {call.limit_s:g} s; stacks:"
                )
                faulthandler.dump_traceback(self.event_log.fd)


class CheckedCalls:
    """The calls of one thread."""

    def __init__(self, checker: CallChecker, name: str) -> None:
        self.name = name
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.slowest_s: dict[str, float] = {}
        self.reached: dict[tuple[str, int], float] = {}
        self.running: RunningCall | None = None
        self.told: RunningCall | None = None
        self.sentence = ""  # of the last failure
        self.towards: int | None = None  # the slot that the next calls are about, if they are about one
        self._checker = checker
        self._last_code: dict[str, int] = {}

    def make(self, kind: str, limit_s: float, allowed: Collection[int], function: Callable[[], int]) -> int:
        """What the function returns; negative numbers are failures and must be among `allowed`."""
        checker, starvation = self._checker, self._checker.starvation
        mf.get_and_clear_last_err_msg()
        self.running = call = RunningCall(kind, time.monotonic(), starvation.starved_s, limit_s)
        try:
            code = function()
        finally:
            self.running = None
        took_s = time.monotonic() - call.began
        if checker.ending:
            return code
        if took_s > limit_s + SLACK_S:
            self._check_lateness(call, took_s, code)
        elif took_s > limit_s:
            starvation.catch_up()  # for the slowest of its kind
        own_s = took_s - (starvation.starved_s - call.starved_before_s)
        self.slowest_s[kind] = max(self.slowest_s.get(kind, 0.0), own_s)
        if code >= 0:
            self.done[kind] += 1
        else:
            self._check_failure(kind, code, allowed)
            checker.failures.append(
                FailedCall(kind, self.towards, call.began, call.began + took_s, code, self.sentence)
            )
        if self._last_code.get(kind) != min(code, 0):
            self._last_code[kind] = min(code, 0)
            checker.event_log.write(f"{self.name}: {kind} → {code} {self.sentence if code < 0 else ''}")
        return code

    def violation(self, what: str) -> None:
        if not self._checker.ending:
            self._checker.event_log.violation(f"{self.name}: {what}")

    def note(self, what: str) -> None:
        self._checker.event_log.write(f"{self.name}: {what}")

    def _check_lateness(self, call: RunningCall, took_s: float, code: int) -> None:
        sentence = mf.get_last_err_msg()
        starvation = self._checker.starvation
        starvation.catch_up()
        starved_s = starvation.starved_s - call.starved_before_s
        if took_s - starved_s > call.limit_s + SLACK_S:
            self.violation(
                f"{call.kind} returned {code} after {took_s:.2f} s, {starved_s:.2f} s of it starved; its limit is "
                f"{call.limit_s:g} s: {sentence}"
            )

    def _check_failure(self, kind: str, code: int, allowed: Collection[int]) -> None:
        self.failed[f"{kind} {code}"] += 1
        self.sentence = mf.get_last_err_msg()
        if not self.sentence:
            self.violation(f"{kind} returned {code} without a sentence")
        if code not in allowed and code not in self._checker.shortage():
            self.violation(f"{kind} returned {code}, expected {sorted(allowed, reverse=True)}: {self.sentence}")


class Work(threading.Thread, ABC):
    """A thread that does one step after the other until it is told to stop; an exception in it is a violation."""

    def __init__(self, name: str, checker: CallChecker) -> None:
        super().__init__(name=name, daemon=True)
        self.calls = checker.open(name)
        self.stopping = threading.Event()
        self._checker = checker

    @abstractmethod
    def step(self) -> None:
        """What is done again and again."""

    def finish(self) -> None:
        """After the last step, on the same thread."""

    def pause(self, seconds: float) -> None:
        self.stopping.wait(seconds)

    def run(self) -> None:
        import traceback

        try:
            while not self.stopping.is_set():
                self.step()
            self.finish()
        except BaseException:
            if not self._checker.ending:
                self.calls.violation(f"unexpected exception: {traceback.format_exc()}")
