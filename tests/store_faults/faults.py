"""What each fault of the campaign against the store does. It takes its choices from its own random numbers only."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

from chaos.shared_state import Field
from chaos.slot_driver import Violation
from memfabric_hybrid.store.etcd.session import FAIL_OVER_S
from store_faults.driver import Driver
from store_faults.plan import AWAY_S, BRIEFLY_S, HEARTBEAT_S, LONG_S, SLOTS
from store_faults.troubles import NODES
from store_faults.worlds import EtcdWorld, TcpWorld
from support.etcd import EtcdNode

EVERYBODY = range(SLOTS)
# By then everybody has noticed that etcd is gone: heartbeats stay unanswered, other nodes are tried meanwhile, and one
# more try may be under way.
ETCD_MISSED_S = 0.5 * HEARTBEAT_S + FAIL_OVER_S + 1.0
TOLD_WITHIN_S = 0.5 * HEARTBEAT_S  # of a move: who hears of it later than a heartbeat time-out is missed meanwhile


def inject(driver: Driver) -> None:
    """Begins the next fault of the schedule, beside those that go on, as far as they can be told apart."""
    fault, choices = driver.schedule.next()
    if fault in _STORE:
        driver.wait_for(lambda: not driver.store_in_trouble, 30, "a store that is well")
        driver.say(fault)
        _STORE[fault](driver, choices)
        return
    alone = fault in _SILENT and driver.world.several_hosts
    if alone:  # a newcomer of another host may get the rank of who is silent
        driver.wait_for_quiet()
    chosen: list[int] = []

    def choose() -> bool:
        slot = driver.choose(choices)
        if slot is not None:
            chosen.append(slot)
        return slot is not None

    driver.wait_for(choose, 60, f"a slot that is well, for: {fault}")
    driver.say(f"{fault}: slot {chosen[0]}")
    _MEMBERS[fault](driver, chosen[0], choices)
    if alone:
        driver.wait_for_quiet()


# ---- members --------------------------------------------------------------------------------------------------------


def _until_restart_s(choices: random.Random) -> float:
    return choices.choice([0.0, choices.uniform(0, 2), choices.uniform(2, 4)])


def _kill(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.look_at(slot)
    driver.kill(slot)
    driver.later(_until_restart_s(choices), lambda: driver.revive(slot))


def _kill_two(driver: Driver, slot: int, choices: random.Random) -> None:
    second = driver.choose(choices)
    _kill(driver, slot, choices)
    if second is not None:
        _kill(driver, second, choices)


def _kill_stopped(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.look_at(slot)
    driver.stop(slot, for_long=True)

    def kill() -> None:
        driver.kill(slot)
        driver.later(_until_restart_s(choices), lambda: driver.revive(slot))

    driver.later(choices.uniform(0, LONG_S), kill)


def _stop_briefly(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.stop(slot)
    driver.later(choices.uniform(0.05, BRIEFLY_S), lambda: driver.go_on(slot))


def _stop_for_long(driver: Driver, slot: int, choices: random.Random) -> None:
    driver.stop(slot, for_long=True)
    driver.later(LONG_S + choices.uniform(0, 1), lambda: driver.go_on(slot))


# ---- a store of ours ------------------------------------------------------------------------------------------------


def _tcp(driver: Driver) -> TcpWorld:
    assert isinstance(driver.world, TcpWorld)
    return driver.world


def _away_s(choices: random.Random) -> float:
    return choices.uniform(0, 1) * choices.choice(AWAY_S)


def _restart_store(driver: Driver, choices: random.Random) -> None:
    world = _tcp(driver)
    driver.store_in_trouble_now()
    world.well = False
    url = re_escaped(world.url)
    if driver.has_met_the_store():
        driver.expect(EVERYBODY, "the store was killed", rf"store {url} is lost: .")
    world.programs.kill(world.active)

    def back(_: None) -> None:
        world.well = True
        driver.store_is_well()

    def start() -> None:
        driver.expect(EVERYBODY, "the store was started again", r"store \S+ is back after .*registered again: ")
        world.programs.begin_start(world.active)
        driver.await_answer("the store in serve", world.programs.begin(world.active, "serve", world.url), back)

    driver.later(_away_s(choices), start)


def _stop_store(driver: Driver, choices: random.Random) -> None:
    world = _tcp(driver)
    driver.store_in_trouble_now()
    world.programs.kill(world.active, signal.SIGSTOP)

    def go_on() -> None:
        world.programs.kill(world.active, signal.SIGCONT)
        driver.store_is_well()

    driver.later(choices.uniform(0.1, 3 * HEARTBEAT_S), go_on)


def _move_store(driver: Driver, choices: random.Random) -> None:
    """To the other program: before the old one ends, or after. Everybody is told, some later than others, and until
    then nobody new comes: it could get the rank of who has not been told.
    """
    driver.wait_for_quiet()
    world = _tcp(driver)
    driver.in_trouble.update(EVERYBODY)
    driver.store_in_trouble_now()
    old, world.active = world.active, 1 - world.active
    old_url, world.url = world.url, world.urls[world.active]
    dies_first = choices.random() < 0.5
    delays_s = [choices.choice([0.0, choices.uniform(0, TOLD_WITHIN_S)]) for _ in EVERYBODY]
    untold = set(EVERYBODY)
    driver.say(f"the store moves from {old_url} to {world.url}, {'after its end' if dies_first else 'and then ends'}")
    world.well = False
    if dies_first:
        world.programs.kill(old)

    def told(slot: int, code: int) -> None:
        if code:
            raise Violation(f"slot {slot}: update_store_url returned {code}")
        untold.discard(slot)
        if not untold:
            if not dies_first:
                world.programs.kill(old)
            driver.await_answer("the other program", world.programs.begin_start(old), lambda _: None)
            driver.in_trouble.clear()
            driver.store_is_well()

    def tell(slot: int) -> None:
        driver.send(slot, lambda code: told(slot, code), "move", world.url)

    def moved(_: None) -> None:
        world.well = True
        there = re_escaped(world.url)
        driver.expect(EVERYBODY, "the store has moved", rf"store {re_escaped(old_url)} has moved to {there}")
        driver.expect(EVERYBODY, "the store has moved", rf"store {there} is back after .*registered again: ")
        for slot in EVERYBODY:
            driver.later(delays_s[slot], lambda slot=slot: tell(slot))  # type: ignore[misc]

    driver.await_answer("the store in serve", world.programs.begin(world.active, "serve", world.url), moved)


def re_escaped(url: str) -> str:
    return url.replace(".", r"\.").replace("[", r"\[").replace("]", r"\]")


# ---- an etcd --------------------------------------------------------------------------------------------------------


def _etcd(driver: Driver) -> EtcdWorld:
    assert isinstance(driver.world, EtcdWorld)
    return driver.world


def _expect_change(driver: Driver, node: EtcdNode) -> None:
    """Of those whose session was at that node."""
    there = [
        slot
        for slot in EVERYBODY
        if slot not in driver.in_trouble
        and driver.state.get(slot, Field.ENTERED_AT)
        and driver.workers.call(slot, "etcd_endpoint") == node.address
    ]
    driver.expect(there, f"etcd node {node.address} was lost", rf"etcd {re_escaped(node.address)} is of no use now")


def _kill_node(driver: Driver, choices: random.Random) -> None:
    """Nobody's calls may fail for it: the store is not in trouble."""
    world = _etcd(driver)
    node = choices.choice(world.nodes)
    driver.store_in_trouble_now(NODES)
    _expect_change(driver, node)
    node.kill()
    driver.say(f"etcd node {node.address} is dead")
    driver.later(_away_s(choices), lambda: _bring_back(driver, [node], driver.store_is_well))


def _stop_node(driver: Driver, choices: random.Random) -> None:
    world = _etcd(driver)
    node = choices.choice(world.nodes)
    driver.store_in_trouble_now(NODES)
    node.signal(signal.SIGSTOP)
    driver.say(f"etcd node {node.address} is stopped")

    def go_on() -> None:
        node.signal(signal.SIGCONT)
        _wait_until_served(driver, [node], driver.store_is_well)

    driver.later(choices.uniform(0.1, 2 * HEARTBEAT_S), go_on)


def _kill_two_nodes(driver: Driver, choices: random.Random) -> None:
    """Nothing can be decided until one of them is back."""
    world = _etcd(driver)
    lost = choices.sample(world.nodes, 2)
    driver.store_in_trouble_now()
    url = re_escaped(world.url)
    for node in lost:
        node.kill()
    driver.say(f"etcd nodes {[node.address for node in lost]} are dead")
    away_s = _away_s(choices)
    if away_s > ETCD_MISSED_S and driver.has_met_the_store():
        driver.expect(EVERYBODY, "two nodes of etcd were lost", rf"store {url} is lost: .")
        driver.later(away_s, lambda: driver.expect(EVERYBODY, "etcd is whole again", rf"store {url} is back"))

    def second() -> None:
        driver.later(choices.uniform(0, 1), lambda: _bring_back(driver, lost[1:], driver.store_is_well))

    driver.later(away_s, lambda: _bring_back(driver, lost[:1], second))


def _bring_back(driver: Driver, nodes: list[EtcdNode], then: Callable[[], None]) -> None:
    world = _etcd(driver)
    for node in nodes:
        world.cluster.begin_start(node)
    _wait_until_served(driver, nodes, then)


def _wait_until_served(driver: Driver, nodes: list[EtcdNode], then: Callable[[], None], looks: int = 300) -> None:
    if all(node.serves() for node in nodes):
        then()
    elif looks == 0:
        raise Violation(f"etcd nodes {[node.address for node in nodes]} do not come back")
    else:
        driver.later(0.1, lambda: _wait_until_served(driver, nodes, then, looks - 1))


_MEMBERS: dict[str, Callable[[Driver, int, random.Random], None]] = {
    "kill a member": _kill,
    "kill two members": _kill_two,
    "kill a stopped member": _kill_stopped,
    "stop a member briefly": _stop_briefly,
    "stop a member for long": _stop_for_long,
}
_SILENT = ("kill a stopped member", "stop a member for long")
_STORE: dict[str, Callable[[Driver, random.Random], None]] = {
    "restart the store": _restart_store,
    "stop the store": _stop_store,
    "move the store": _move_store,
    "kill an etcd node": _kill_node,
    "stop an etcd node": _stop_node,
    "kill two etcd nodes": _kill_two_nodes,
}
