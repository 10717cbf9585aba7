"""Every call of a worker is made through here: counted, timed against its limit, its code and its sentence judged.

One `Account` per thread and no locks: calls may be interrupted by exceptions at any point.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import memfabric_hybrid as mf
from chaos.diary import Diary
from chaos.plan import SLACK_S
from chaos.ticker import Ticker

SHORTAGE = (-2001, -2002, -2004, -2014)  # what any call may say while its process gets no descriptors
NEIGHBOURS_SHORTAGE = (-2002, -2004)  # while another one gets none
RAISED = -9000  # a call that raises instead of returning codes did so, in the documented way


class Underway(NamedTuple):
    """A call that has not returned."""

    kind: str
    began: float
    starved_before_s: float
    limit_s: float


class Ledger:
    """The accounts of all threads of this process."""

    def __init__(self, diary: Diary, ticker: Ticker, shortage: Callable[[], Collection[int]]) -> None:
        self.diary = diary
        self.shortage = shortage  # what calls may say now because somebody has no descriptors
        self.ticker = ticker
        self.accounts: list[Account] = []
        self.ending = False  # from now on calls may fail as they like: their objects are being taken away
        ticker.look = self._look_for_hangs

    def open(self, name: str) -> Account:
        account = Account(self, name)
        self.accounts.append(account)
        return account

    def totals(self) -> dict[str, Any]:
        """For the referee: successes and failures by kind, the slowest call of each, the last success towards each."""
        done: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        slowest_s: dict[str, float] = {}
        reached: dict[tuple[str, int], float] = {}
        for account in list(self.accounts):
            done.update(dict(account.done))
            failed.update(dict(account.failed))
            for kind, seconds in list(account.slowest_s.items()):
                slowest_s[kind] = max(slowest_s.get(kind, 0.0), seconds)
            for target, when in list(account.reached.items()):
                reached[target] = max(reached.get(target, 0.0), when)
        return {"done": dict(done), "failed": dict(failed), "slowest_s": slowest_s, "reached": reached}

    def _look_for_hangs(self) -> None:
        now = time.monotonic()
        for account in list(self.accounts):
            call = account.underway
            if call is None or self.ending or account.told is call:
                continue
            starved_s = self.ticker.starved_s - call.starved_before_s
            if now - call.began - starved_s > call.limit_s + 2 * SLACK_S:
                account.told = call
                self.diary.violation(
                    f"{account.name}: {call.kind} has not returned for {now - call.began:.2f} s, {starved_s:.2f} s of "
                    f"it starved; its limit is {call.limit_s:g} s; stacks:"
                )
                faulthandler.dump_traceback(self.diary.fd)


class Account:
    """The calls of one thread."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.name = name
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.slowest_s: dict[str, float] = {}
        self.reached: dict[tuple[str, int], float] = {}
        self.underway: Underway | None = None
        self.told: Underway | None = None
        self.sentence = ""  # of the last failure
        self._ledger = ledger
        self._last_code: dict[str, int] = {}

    def call(self, kind: str, limit_s: float, allowed: Collection[int], function: Callable[[], int]) -> int:
        """What the function returns; negative numbers are failures and must be among `allowed`."""
        ledger, ticker = self._ledger, self._ledger.ticker
        mf.get_and_clear_last_err_msg()
        self.underway = call = Underway(kind, time.monotonic(), ticker.starved_s, limit_s)
        try:
            code = function()
        finally:
            self.underway = None
        took_s = time.monotonic() - call.began
        if ledger.ending:
            return code
        if took_s > limit_s + SLACK_S:
            self._judge_lateness(call, took_s, code)
        own_s = took_s - (ticker.starved_s - call.starved_before_s)
        self.slowest_s[kind] = max(self.slowest_s.get(kind, 0.0), own_s)
        if code >= 0:
            self.done[kind] += 1
        else:
            self._judge_failure(kind, code, allowed)
        if self._last_code.get(kind) != min(code, 0):
            self._last_code[kind] = min(code, 0)
            ledger.diary.write(f"{self.name}: {kind} → {code} {self.sentence if code < 0 else ''}")
        return code

    def violation(self, what: str) -> None:
        if not self._ledger.ending:
            self._ledger.diary.violation(f"{self.name}: {what}")

    def note(self, what: str) -> None:
        self._ledger.diary.write(f"{self.name}: {what}")

    def _judge_lateness(self, call: Underway, took_s: float, code: int) -> None:
        sentence = mf.get_last_err_msg()
        ticker = self._ledger.ticker
        ticker.catch_up()
        starved_s = ticker.starved_s - call.starved_before_s
        if took_s - starved_s > call.limit_s + SLACK_S:
            self.violation(
                f"{call.kind} returned {code} after {took_s:.2f} s, {starved_s:.2f} s of it starved; its limit is "
                f"{call.limit_s:g} s: {sentence}"
            )

    def _judge_failure(self, kind: str, code: int, allowed: Collection[int]) -> None:
        self.failed[f"{kind} {code}"] += 1
        self.sentence = mf.get_last_err_msg()
        if not self.sentence:
            self.violation(f"{kind} returned {code} without a sentence")
        if code not in allowed and code not in self._ledger.shortage():
            self.violation(f"{kind} returned {code}, expected {sorted(allowed, reverse=True)}: {self.sentence}")


class Work(threading.Thread):
    """A thread that does one step after the other until it is told to stop; an exception in it is a violation."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self.account = ledger.open(name)
        self.stopping = threading.Event()
        self._ledger = ledger

    def step(self) -> None:
        raise NotImplementedError

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
            if not self._ledger.ending:
                self.account.violation(f"unexpected exception: {traceback.format_exc()}")
