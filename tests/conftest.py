"""Options and fixtures for the whole suite."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.cluster import Cluster
from tests.support.machine import UNABLE


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forbid-skips",
        action="store_true",
        help="fail the run if any test is skipped (CI has every outside tool installed)",
    )


class _SkipWatch:
    """Fails the run on a skip where none is expected, and says which.

    What cannot be installed is no such skip: a right to mount, say. It is shown all the same.
    """

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        unable = UNABLE in str(report.longrepr)
        if report.skipped and not unable and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.skipped:
            terminalreporter.write_line(f"skipped, but skips are forbidden here: {nodeid}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--forbid-skips"):
        config.pluginmanager.register(_SkipWatch())


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
    """The kcat binary; its tests skip where there is none."""
    found = shutil.which("kcat")
    if found is None:
        pytest.skip("kcat is not installed (Debian: apt-get install kcat)")
    return found


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """A headless browser; its tests skip where there is none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    return Browser(found, tmp_path)
