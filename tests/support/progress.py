"""Progress of a run that a person can follow, in place of a screen of dots.

A folder gets a line when its tests are over, a failure when it occurs. On a terminal the last line
is the state of the run; into a file it is written every ten seconds. At the end: the slowest tests,
and the time of each folder. Then comes pytest's own closing line. `-v` and `-q` are as ever.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import PurePosixPath

import pytest

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_REDRAWS = 0.2
_SLOWEST = 10
Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]
_DEEPEST = 3
"""Folders below this many names are counted with the one above them."""


def folder_of(nodeid: str) -> str:
    """The folder under which a test is counted."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parts[:-1][:_DEEPEST]) or "."


def clock(seconds: float) -> str:
    """Minutes and seconds, as 12:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Tally:
    """What of a run is over: tests, failures and seconds, in all and by folder."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """By test: of set-up, call and tear-down together."""
        self._over: set[str] = set()

    def collected(self, nodeids: Iterable[str]) -> None:
        self.total = Counter(map(folder_of, nodeids))

    def started(self, nodeid: str) -> None:
        self.begun[folder_of(nodeid)] += 1

    def reported(self, report: pytest.TestReport) -> None:
        folder = folder_of(report.nodeid)
        self.seconds[report.nodeid] += report.duration
        self.failed[folder] += report.failed
        self.skipped[folder] += report.skipped

    def finished(self, nodeid: str) -> str | None:
        """A test is over. Returns its folder if all of that one's tests are."""
        folder = folder_of(nodeid)
        if nodeid in self._over:
            return None
        self._over.add(nodeid)
        self.done[folder] += 1
        return folder if self.done[folder] == self.total[folder] else None

    def state(self, elapsed: float) -> str:
        """The state of the run in one line: the folders under way come last."""
        done, total = self.done.total(), self.total.total()
        share = f"{100 * done // total}%" if total else "0%"
        under_way = [name for name in self.total if self.done[name] < self.begun[name]]
        parts = [f"{name.removeprefix('tests/')} {self.done[name]}/{self.total[name]}"
                 for name in under_way]  # fmt: skip
        head = f"{clock(elapsed)}  {share:>4}  {done}/{total} tests, {self.failed.total()} failed"
        return "  ".join([head, *parts])

    def folder_line(self, folder: str, elapsed: float) -> str:
        """What is written when the last test of a folder is over."""
        failed, skipped = self.failed[folder], self.skipped[folder]
        text = f"{clock(elapsed)}  {folder:<24} {self.total[folder]:>6} tests, {failed} failed"
        return text + (f", {skipped} skipped" if skipped else "")

    def slowest(self) -> list[str]:
        by_seconds = sorted(self.seconds.items(), key=lambda item: item[1], reverse=True)
        return [f"{seconds:7.1f} s  {nodeid}" for nodeid, seconds in by_seconds[:_SLOWEST]]

    def by_folder(self) -> list[str]:
        seconds: defaultdict[str, float] = defaultdict(float)
        for nodeid, spent in self.seconds.items():
            seconds[folder_of(nodeid)] += spent
        return [
            f"{spent:7.1f} s  {self.done[folder]:>6} tests  {folder}"
            for folder, spent in sorted(seconds.items(), key=lambda item: item[1], reverse=True)
        ]


class Progress:
    """The plugin. It writes through pytest's own reporter, whose dots it takes out."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._tally = Tally()
        self._started = time.monotonic()
        self._written = 0.0
        self._redraws = reporter.isatty()
        self._running = False
        reporter.showfspath = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:  # none where workers collect
            self._tally.collected(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._tally.collected(ids)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        self._running = True
        try:
            return (yield)
        finally:
            self._running = False

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Status, Status]:
        """While tests run, keep what a report counts as, without its letter."""
        status = yield
        return (status[0], "", "") if self._running else status

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tally.started(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tally.reported(report)
        if report.failed:
            self._line(f"FAILED ({report.when}) {report.nodeid}: {_reason(report)}", red=True)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        ended = self._tally.finished(nodeid)
        if ended is not None:
            self._line(self._tally.folder_line(ended, self._elapsed()))
            self._written = self._elapsed()
        between = _SECONDS_BETWEEN_REDRAWS if self._redraws else _SECONDS_BETWEEN_LINES
        if self._elapsed() - self._written < between:
            return
        self._written = self._elapsed()
        state = self._tally.state(self._written)
        if self._redraws:
            width = os.get_terminal_size().columns - 1
            self._reporter.rewrite(state[:width], erase=True)
        else:
            self._line(state)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tally.seconds:
            return
        terminalreporter.section("the slowest tests")
        for line in self._tally.slowest():
            terminalreporter.write_line(line)
        terminalreporter.section("time by folder, of all workers together")
        for line in self._tally.by_folder():
            terminalreporter.write_line(line)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        spent = sum(one.ru_utime + one.ru_stime for one in used)
        terminalreporter.write_line(f"elapsed: {clock(self._elapsed())}, CPU: {clock(spent)}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _line(self, text: str, *, red: bool = False) -> None:
        """Write a line that stays, over the state if that is shown."""
        if self._redraws:
            self._reporter.rewrite(text, erase=True, red=red)
            text = ""
        self._reporter.write_line(text, red=red)
        self._reporter.flush()


def _reason(report: pytest.TestReport) -> str:
    """The first line of what went wrong."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else str(crash.message)
    return text.strip().partition("\n")[0]


def register(config: pytest.Config) -> None:
    """Show progress in this run, unless it is a worker or pytest is told how much to write."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and config.get_verbosity() == 0:
        config.pluginmanager.register(Progress(reporter), "progress")
