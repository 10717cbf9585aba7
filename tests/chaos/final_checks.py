"""What must hold at the end of a campaign, and the report when it does not."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.event_log import latest
from chaos.plan import FOOTPRINT_SPREAD, SLOTS
from chaos.slot_driver import SlotDriver, Violation

# Each of these must have worked at least so often, or the campaign has tested nothing.
LEAST_SUCCESSES = dict.fromkeys(
    (
        "pool write", "pool read", "pool batch", "pool rectangle", "pool copy between others", "pool array",
        "pool submit", "pool wait", "stream wait", "look at own memory", "leave", "join", "bm.create", "shm.create",
        "heap barrier", "heap all_gather", "heap array", "subgroup barrier", "subgroup all_gather",
        "value taken", "value released", "transfer write", "transfer batch", "transfer on a stream",
        "transfer with a ticket", "transfer read", "transfer to loose memory", "probe", "peer down told",
        "register", "unregister", "extra pool create", "extra pool destroy", "extra copy", "extra transfer",
        "extra engine destroy", "extra stream",
    ),
    5,
)  # fmt: skip
LEAST_SUCCESSES["pool write of many MiB"] = 1
_HEAP_END = re.compile(r"heap: HEAP (\w+) ended after (\d+) rounds")
ACTIONS_SHOWN, EVENTS_SHOWN = 50, 25


def expect_clean_end(driver: SlotDriver, *, rounds_apart: int = 0) -> None:
    """All threads rest, nobody holds more than the others do, and the rounds of every heap agree, but for so many."""
    late = [names for names in driver.workers.call_all("rest") if names]
    if late:
        raise Violation(f"threads that did not end: {late}")
    footprints: list[dict[str, int]] = driver.workers.call_all("footprint")
    driver.say(f"footprints: {footprints}")
    for kind in sorted({kind for footprint in footprints for kind in footprint}):
        counts = [footprint.get(kind, 0) for footprint in footprints]
        if max(counts) - min(counts) > FOOTPRINT_SPREAD:
            raise Violation(f"{kind}: {counts}, although all workers are in the same state")
    _expect_equal_rounds(driver.folder, rounds_apart)


def _expect_equal_rounds(folder: Path, rounds_apart: int) -> None:
    rounds: dict[str, set[int]] = defaultdict(set)
    for path in folder.glob("slot-*.events"):
        for name, count in _HEAP_END.findall(path.read_text(errors="replace")):
            rounds[name].add(int(count))
    unequal = {name: sorted(counts) for name, counts in rounds.items() if max(counts) - min(counts) > rounds_apart}
    if unequal:
        raise Violation(f"rounds of a heap succeeded for some of the living and not for others: {unequal}")


def expect_no_sockets(store_url: str) -> None:
    """After the end: nobody listens under a name of this campaign's cluster."""
    names = Path("/proc/net/unix").read_text()
    left = [line.split()[-1] for line in names.splitlines() if f"@{store_url.removeprefix('tcp://')}/" in line]
    assert not left, f"still listening: {left}"


def expect_something_happened(driver: SlotDriver, least_successes: Mapping[str, int]) -> None:
    done, _, _ = _sums(driver.totals)
    missing = {kind: done[kind] for kind, least in least_successes.items() if done[kind] < least}
    if missing:
        raise Violation(f"too few successes to say that it was tested: {missing}")


def expect_all_injected(driver: SlotDriver) -> None:
    missed = driver.schedule.kinds - set(driver.schedule.injected)
    if missed:
        raise Violation(f"these faults did not happen: {sorted(missed)}")


def _sums(totals: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str], dict[str, float]]:
    done: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    slowest_s: dict[str, float] = {}
    for one in totals:
        done.update(one["done"])
        failed.update(one["failed"])
        for kind, seconds in one["slowest_s"].items():
            slowest_s[kind] = max(slowest_s.get(kind, 0.0), seconds)
    return done, failed, slowest_s


def repeated_by(driver: SlotDriver) -> str:
    return f"{driver.seed_variable}={driver.seed}"


def summary(driver: SlotDriver) -> str:
    """Operations and faults by kind, with the slowest call of each."""
    done, failed, slowest_s = _sums(driver.totals)
    lines = [f"{driver.campaign}: {sum(done.values())} operations, {len(driver.totals)} lives; {repeated_by(driver)}"]
    for kind in sorted(set(done) | set(slowest_s)):
        failures = {key.rsplit(" ", 1)[1]: count for key, count in failed.items() if key.rsplit(" ", 1)[0] == kind}
        told = ", ".join(f"{count} × {code}" for code, count in sorted(failures.items()))
        lines.append(f"  {kind:28} {done[kind]:8} worked  slowest {slowest_s.get(kind, 0.0):6.2f} s  {told}")
    lines += [f"  fault: {fault:28} {count:4} ×" for fault, count in sorted(driver.schedule.injected.items())]
    return "\n".join(lines)


def report(driver: SlotDriver, what: str) -> str:
    """Everything that is known about a failure."""
    event_logs = sorted(driver.folder.glob("slot-*.events"))
    parts = [
        f"{what}\n\nto repeat the driver's choices: {repeated_by(driver)}; event logs are in {driver.folder}",
        "--- the driver's last actions:\n" + "\n".join(latest([driver.folder / "driver.events"], ACTIONS_SHOWN)),
        "--- the workers' last events:\n" + "\n".join(latest(event_logs[-2 * SLOTS :], EVENTS_SHOWN)),
        *(driver.workers.report(slot, "has these stacks and this output") for slot in range(SLOTS)),
        "--- the store:\n" + driver.store_report(),
    ]
    return "\n\n".join(parts)
