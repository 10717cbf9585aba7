"""What holds for every test: nothing may leak, nothing is skipped unseen in CI, random choices can be repeated."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator

import hypothesis
import numpy  # noqa: F401  (starts its threads now, not in the middle of some test)
import pytest
import uvloop

from support import campaigns, etcd, leaks, ports, processes
from support.certificates import Authority
from support.etcd import EtcdCluster
from support.hosts import Network
from support.worker import fork_server

uvloop.new_event_loop().close()  # the first loop of a process opens a pipe that stays: now, not in the middle of a test

hypothesis.settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, print_blob=True)
hypothesis.settings.register_profile("soak", max_examples=20_000, deadline=None, print_blob=True)
NEEDS_ROOT = "needs root: "  # begins the reason of a skip that is right for other users
ALL_STORES = os.environ.get("MF_TEST_STORE")  # what all tests' stores are, if not what each test says
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "ci"


def pytest_configure(config: pytest.Config) -> None:
    share_compiled_kernels(config)
    hypothesis.settings.load_profile(PROFILE)
    processes.adopt_orphans()
    fork_server()  # now, so that no test is blamed for it


def share_compiled_kernels(config: pytest.Config) -> None:
    """Every kernel is compiled once in a run, and not by every rank of every test. Not longer: what a kernel calls may
    have changed since, which the cache does not see.
    """
    if "NUMBA_CACHE_DIR" in os.environ:  # another process of this run has made it
        return
    directory = tempfile.TemporaryDirectory(prefix="memfabric-kernels-")
    config.add_cleanup(directory.cleanup)
    os.environ["NUMBA_CACHE_DIR"] = directory.name


def pytest_report_header(config: pytest.Config) -> str:
    return f"to repeat this run: MF_SEED={campaigns.seed()} HYPOTHESIS_PROFILE={PROFILE}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    parameters = (
        item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    )
    if ALL_STORES == "etcd" or "etcd" in [value for value in parameters if isinstance(value, str)]:
        etcd.shared()  # before the test begins, so that it is not blamed for it
    marker = item.get_closest_marker("needs_root")
    if marker is not None and os.geteuid() != 0:
        pytest.skip(NEEDS_ROOT + marker.args[0])
    plain = item.get_closest_marker("plain_store")
    if plain is not None and os.environ.get("MF_TEST_STORE") == "tls":
        pytest.skip(f"needs a store without TLS: {plain.args[0]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is about our own store is left out when all stores are an etcd.

    Tests run in several processes, which must agree on their names: an address in one differs now and then.
    """
    if ALL_STORES == "etcd":
        items[:] = [item for item in items if item.get_closest_marker("own_store") is None]
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:
        raise pytest.UsageError(f"names of tests that differ from process to process, give them ids: {unstable}")


def unseen_skips(reporter: pytest.TerminalReporter | None) -> bool:
    """Whether tests were skipped that root's run in CI would not make up for."""
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    return any(NEEDS_ROOT not in str(report.longrepr) for report in skipped)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a skipped test is a failure: it hides that something is not tested."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and unseen_skips(reporter) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("CI") == "true" and unseen_skips(terminalreporter):
        terminalreporter.write_line("CI=true: skipped tests count as failures", red=True)


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Set up first and torn down last, so it sees what the other fixtures forget as well."""
    before = leaks.Snapshot.take()
    yield
    found = leaks.wait_for_leaks(before)
    if found:
        pytest.fail("the test left behind:\n  " + "\n  ".join(found), pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `also_over_tls` or `also_on_etcd` run once more that way. With MF_TEST_STORE all of them do
    (`scripts/soak tls`, `scripts/soak etcd`).
    """
    ways = [("tcp", "plain")]
    if metafunc.definition.get_closest_marker("also_over_tls"):
        ways.append(("tcp", "tls"))
    if metafunc.definition.get_closest_marker("also_on_etcd"):
        ways.append(("etcd", "plain"))
    if len(ways) > 1 and ALL_STORES is None:
        names = [kind if how == "plain" else how for kind, how in ways]
        metafunc.parametrize(("store_kind", "store_protection"), ways, indirect=True, ids=names)


@pytest.fixture(scope="session")
def tls_info(tmp_path_factory: pytest.TempPathFactory) -> str:
    """For `MF_CONFIG_STORE_TLS_INFO`: one certificate for all, of an authority of this run."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    return authority.info(authority.issue("member"), with_crl=True)


@pytest.fixture(autouse=True)
def store_protection(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How this test's stores and their clients talk, in this process and in the workers that it starts.

    For all tests, though few ask for another: pytest forgets parameters of what no test has among its fixtures.
    """
    how = getattr(request, "param", "plain")
    if how == "tls":
        monkeypatch.setenv("MF_CONFIG_STORE_TLS_INFO", request.getfixturevalue("tls_info"))
    return str(how)


@pytest.fixture(scope="session", autouse=ALL_STORES == "tls")
def all_over_tls(tls_info: str) -> Iterator[None]:
    os.environ["MF_CONFIG_STORE_TLS_INFO"] = tls_info
    yield
    del os.environ["MF_CONFIG_STORE_TLS_INFO"]


@pytest.fixture(scope="session")
def shared_etcd() -> EtcdCluster:
    """One node for all tests of this process, each of which has an instance of its own."""
    return etcd.shared()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random choices of this test; the seed is in the report's header."""
    return campaigns.generator(request.node.nodeid)


@pytest.fixture(autouse=True)
def store_kind(request: pytest.FixtureRequest) -> str:
    """What `store_url` leads to."""
    return str(getattr(request, "param", ALL_STORES))


@pytest.fixture
def store_url(request: pytest.FixtureRequest, store_kind: str) -> Iterator[str]:
    """The URL of a store that does not run yet, on a port that stays ours during the test; of an etcd, which runs."""
    if store_kind == "etcd":
        yield request.getfixturevalue("shared_etcd").url()
        return
    with ports.reserved_port() as port:
        yield f"tcp://127.0.0.1:{port}"


@pytest.fixture
def hosts3() -> Iterator[Network]:
    """Three hosts; `hosts3.places(2)` for two ranks on each. Files that use it say `pytestmark = hosts.needs_root`."""
    with Network(3) as network:
        yield network
