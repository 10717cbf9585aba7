"""Orderly ends of engines while their peers end at the same moment and callbacks run: nobody waits for ever."""

from __future__ import annotations

import faulthandler
import random
import threading
import time

import pytest

import memfabric_hybrid as mf
from support.campaigns import generator, length

HANG_S = 20.0


def opened(delay_s: float) -> mf.TransferEngine:
    """An engine whose peer-down callback takes that long."""
    engine = mf.TransferEngine()
    engine.set_peer_down_callback(lambda session: time.sleep(delay_s))
    assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
    return engine


def end_together(engines: list[mf.TransferEngine], choices: random.Random) -> None:
    """Each on a thread of its own, at nearly the same moment."""
    start = threading.Barrier(len(engines))

    def end(engine: mf.TransferEngine, delay_s: float) -> None:
        start.wait()
        time.sleep(delay_s)
        engine.destroy()

    threads = [
        threading.Thread(target=end, args=(engine, choices.choice([0.0, choices.uniform(0, 0.001)])), daemon=True)
        for engine in engines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback()
        pytest.fail(f"an engine did not end within {HANG_S:g} s; the stacks are in the output")


@pytest.mark.soak
@pytest.mark.parametrize("peers", [2, 3])
def test_engines_that_end_at_the_same_moment(peers: int) -> None:
    choices = generator(f"shutdowns of {peers}")
    for _ in range(length("MF_SHUTDOWN_ROUNDS", 200) // 2):
        engines = [opened(choices.uniform(0, 0.001)) for _ in range(peers)]
        for engine in engines:
            for other in engines:
                if other is not engine:
                    assert engine.send_probe(other.session_id) == 0, mf.get_last_err_msg()
        end_together(engines, choices)
