"""Options and fixtures for the whole suite."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.support import needs, order, progress, suites
from tests.support.browser import Browser
from tests.support.cluster import Cluster, Process
from tests.support.forked import Parents
from tests.support.machine import UNABLE

# Container images often set this. The tests start some thousand Python processes, and each would
# compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# `make test` plays the same examples in every run, `make test-all` more of them (`long`), and `make
# fuzz` others (`random`). On a machine with other work, an example is slow now and then, whatever
# the test.
settings.register_profile(
    "random", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
settings.register_profile("long", settings.get_profile("random"), derandomize=True, database=None)
settings.register_profile(
    suites.SHORT, settings.get_profile("long"), max_examples=100 // suites.FEWER
)
settings.load_profile(suites.SHORT)


def pytest_addoption(parser: pytest.Parser) -> None:
    order.add_options(parser)
    parser.addoption(
        "--forbid-skips",
        action="store_true",
        help="fail the run if any test is skipped (CI has every outside tool that Debian has)",
    )
    parser.addoption(
        "--bare",
        action="store_true",
        help="fail the run unless all optional tools are missing and nothing else is skipped",
    )
    parser.addoption(
        "--on-store",
        action="store_true",
        help="brokers have their logs in object stores: folders in their place",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --on-store, leave out what is about a local folder; without, what is only then run."""
    name = "local_log" if Cluster.in_store else "more_stores"
    left_out = [item for item in items if item.get_closest_marker(name) is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    order.reorder(config, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which optional tools the selected tests need; a worker passes it on to `_SkipWatch`."""
    tools = {tool for item in session.items for tool in needs.tools(item)}
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tools"] = sorted(tools)
    watch = session.config.pluginmanager.get_plugin("skip-watch")
    if isinstance(watch, _SkipWatch):
        watch.needed |= tools


class _SkipWatch:
    """Fails the run on a skip that is not expected, and names it.

    What cannot be installed is no such skip: a right to mount, say. It is shown all the same.

    Args:
        missing: tools that are not there: for each of them at least one test must be skipped;
            under `-m`, for each that a selected test needs.
        not_packaged: others that are not there. Tests may be skipped for want of these tools and
            of nothing else.
    """

    def __init__(self, missing: set[str], not_packaged: set[str]) -> None:
        self.needed: set[str] = set()
        self._missing = missing | not_packaged
        self._hidden = missing
        self._named: set[str] = set()
        self._problems: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Under xdist only workers know the tests."""
        self.needed |= set(getattr(node, "workeroutput", {}).get("tools", []))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reason = str(report.longrepr)
        if not report.skipped or UNABLE in reason or hasattr(report, "wasxfail"):
            return
        named = needs.named_in(report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
        self._named |= named
        if not named or not named <= self._missing:
            self._problems.append(f"skipped, but not expected to be: {report.nodeid}: {reason}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        expected = self._hidden & self.needed if session.config.option.markexpr else self._hidden
        unused = sorted(expected - self._named)
        self._problems += [f"no test was skipped for want of {tool}" for tool in unused]
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for problem in self._problems:
            terminalreporter.write_line(problem)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*tools, fetch): optional programs, and what is downloaded for the test"
    )
    config.addinivalue_line("markers", "long: not part of `make test`; CONTRIBUTING has the rule")
    config.addinivalue_line("markers", "local_log: it needs the log in a local folder")
    config.addinivalue_line("markers", "more_stores: run with --on-store only")
    Cluster.in_store = bool(config.getoption("--on-store"))
    bare = config.getoption("--bare")
    if bare and any(map(needs.find, needs.TOOLS)):
        found = ", ".join(tool for tool in needs.TOOLS if needs.find(tool))
        raise pytest.UsageError(f"--bare, but there are: {found}")
    on_worker = hasattr(config, "workerinput")
    if not on_worker and (bare or config.getoption("--forbid-skips")):
        not_packaged = {tool for tool in needs.GO_TOOLS if needs.find(tool) is None}
        watch = _SkipWatch(set(needs.TOOLS) if bare else set(), not_packaged)
        config.pluginmanager.register(watch, "skip-watch")
    Process.parents = Parents()


def pytest_sessionstart(session: pytest.Session) -> None:
    progress.register(session.config)


def pytest_unconfigure() -> None:
    if Process.parents is not None:
        Process.parents.close()
        Process.parents = None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """With `--dist loadfile`: what runs in one worker is what `_Scheduling` has in one scope."""
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """The tests of a file run in one worker.

    So do all of Spark's, so that it is started once. Long tests that share nothing are spread.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_SPREAD):
            return nodeid
        file = str(super()._split_scope(nodeid))
        return "tests/spark" if file.startswith("tests/spark/") else file


_SPREAD = (
    "tests/sim/",
    "tests/crash/test_compaction_power_cut.py",
    "tests/crash/test_explorer.py",
    "tests/crash/test_store_kills.py",
)


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Outside of the test's time limit, which a build on a busy machine would reach."""
    needs.fetch(item)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """In front of all fixtures."""
    needs.check(item)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A broker and a gateway process of this test's own, on free ports."""
    with Cluster(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker and a gateway shared by a module's tests: for tests that disturb neither."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def kcat() -> str:
    """The kcat binary."""
    return needs.program("kcat")


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """A headless browser."""
    return Browser(needs.program("chromium"), tmp_path)
