"""The campaign's own checks: what they must find, and what they must not complain about."""

from __future__ import annotations

import signal
import time

from memfabric_hybrid.clock import Deadline
from store_faults import log_lines
from store_faults.etcd_pulse import EtcdPulse
from store_faults.log_lines import Expected, Line
from store_faults.plan import FLOOD_LINES, FLOOD_S, SETTLE_S
from store_faults.troubles import NODES, STORE, Troubles
from support import etcd


def test_a_call_between_the_well_has_no_excuse() -> None:
    troubles = Troubles()
    troubles.begin(1, 100.0)
    troubles.begin(STORE, 100.0)
    assert not troubles.excuse_call(0, 2, 101.0, 102.0), "the store does not matter to copies"
    assert troubles.excuse_call(0, 1, 101.0, 102.0)
    assert troubles.excuse_call(1, 0, 101.0, 102.0)
    assert not troubles.excuse_call(0, 1, 98.0, 99.9), "it was well then"
    troubles.begin(NODES, 98.0)  # of which nobody may notice anything
    assert troubles.excuse_control(101.0, 102.0)
    assert not troubles.excuse_control(98.0, 99.9)


def test_an_excuse_ends_some_time_after_the_trouble() -> None:
    troubles = Troubles()
    troubles.begin(1, 100.0)
    troubles.end(1, 110.0)
    assert troubles.excuse_call(0, 1, 110.0 + SETTLE_S - 0.1, 120.0)
    assert not troubles.excuse_call(0, 1, 110.0 + SETTLE_S + 0.1, 120.0)
    assert not troubles.met(1, 110.5, 111.0), "itself it is well"
    troubles.begin(STORE, 112.0)  # before it has settled: who was gone is found again through the store
    assert troubles.excuse_call(0, 1, 150.0, 151.0)
    troubles.end(STORE, 160.0)
    assert not troubles.excuse_call(0, 1, 160.0 + SETTLE_S + 0.1, 170.0)


def test_who_was_starved_is_excused_like_who_was_stopped() -> None:
    troubles = Troubles()
    troubles.begin(0, 200.0)
    troubles.add(0, 100.0, 101.0)
    assert troubles.excuse_call(0, 1, 100.5, 100.6)
    troubles.end(0, 201.0)
    assert not troubles.excuse_call(0, 1, 201.0 + SETTLE_S + 0.1, 300.0)


def test_a_fault_needs_its_line_in_its_time() -> None:
    lines = log_lines.parse("99.000 a: store x is lost: reset\n101.000 a: store x is back\n    a second line\n")
    assert [line.at for line in lines] == [99.0, 101.0]
    lost, back = Expected("killed", r"is lost: .", 98.5), Expected("started", "is back", 98.5)
    assert log_lines.unexplained(lines, [lost, back]) == []
    [missing] = log_lines.unexplained(lines, [lost._replace(since=99.5), back])
    assert missing == "no line of the log explains: killed (looked for 'is lost: .')"


def test_what_repeats_itself_is_a_flood() -> None:
    quiet = [Line(number * FLOOD_S / FLOOD_LINES * 1.1, f"attempt {number}") for number in range(1000)]
    assert log_lines.floods(quiet) == []
    flood = [Line(number * FLOOD_S / FLOOD_LINES * 0.9, f"attempt {number} in 0.{number} s") for number in range(1000)]
    [found] = log_lines.floods(flood)
    assert found.startswith(f"{FLOOD_LINES + 1} lines within")
    ranks = [Line(number * 0.1, f"rank {number % 10} is gone: at 0x{number:x}") for number in range(100)]
    assert log_lines.floods(ranks) == [], "each of another rank"


def test_an_etcd_that_serves_nobody_is_noticed() -> None:
    with etcd.running() as cluster:
        [node] = cluster.nodes
        pulse = EtcdPulse(cluster.nodes)
        pulse.start()
        deadline = Deadline(30)
        while len(pulse.take_spans(0.0)) < 2 and not deadline.expired:  # one answer, and what follows it
            time.sleep(0.01)
        stopped_at = time.monotonic()
        node.signal(signal.SIGSTOP)
        while not (unserved := pulse.take_spans(1.0)) and not deadline.expired:
            time.sleep(0.01)
        node.signal(signal.SIGCONT)
        pulse.stop()
    [(began, ended)] = unserved
    assert stopped_at - 1.0 < began < stopped_at + 0.5
    assert ended - began > 1.0
