"""`quafka.process.run` in a real process."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import pytest

TINY = Path(__file__).with_name("tiny.py")
SECONDS = 60.0


class Running:
    """tiny.py with a pipe for its ready report, and a lifeline."""

    def __init__(
        self,
        how: str = "good",
        *,
        gets_ready: bool = True,
        before: Callable[[], None] | None = None,
    ) -> None:
        """In a session of its own. `before` runs there before the program does."""
        ready, ready_end = os.pipe()
        lifeline_end, self._lifeline = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, str(TINY), how, str(ready_end), str(lifeline_end)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(ready_end, lifeline_end),
            start_new_session=True,
            preexec_fn=before,  # noqa: PLW1509 - pytest has no other threads here
        )
        os.close(ready_end)
        os.close(lifeline_end)
        self._ready = ready
        if gets_ready:
            assert self.ready is not None, "it is up, or has ended"

    @cached_property
    def ready(self) -> str:
        """The ready report; empty if the program has ended before."""
        with os.fdopen(self._ready) as lines:
            return lines.readline()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def cut_lifeline(self) -> None:
        os.close(self._lifeline)
        self._lifeline = -1

    def until_printed(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n"

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def clean_up(self) -> None:
        if self._lifeline >= 0:
            self.cut_lifeline()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    started = Running(*getattr(request, "param", ()))
    yield started
    started.clean_up()


def how(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("running", [(name,)], indirect=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_0(running: Running, number: int) -> None:
    assert json.loads(running.ready) == {"listen": "here:1"}
    running.signal(number)
    assert running.ended() == (0, "closing\nclosed\n", "")


@pytest.mark.parametrize("running", [("good",), ("cannot-reload",)], indirect=True)
def test_sighup_reloads(running: Running) -> None:
    for _ in range(2):
        running.signal(signal.SIGHUP)
        running.until_printed("reloading")
    running.signal(signal.SIGTERM)
    code, out, err = running.ended()
    assert (code, out) == (0, "closing\nclosed\n")
    assert err.count("SIGHUP: certificates, allow-lists and the keys of tokens") == 2


def test_sighup_does_not_end_a_start() -> None:
    started = Running("recovers", gets_ready=False)
    try:
        started.until_printed("starting")
        started.signal(signal.SIGHUP)
        started.until_printed("reloading")
        assert started.ready
    finally:
        started.clean_up()


class Terminal:
    """A terminal; `attach` makes it that of a new session."""

    def __init__(self) -> None:
        self._end, self._programs_end = os.openpty()

    def attach(self) -> None:
        fcntl.ioctl(self._programs_end, termios.TIOCSCTTY, 0)

    def close(self) -> None:
        os.close(self._programs_end)
        os.close(self._end)


def test_a_closed_terminal_drains_and_exits_0() -> None:
    terminal = Terminal()

    def before() -> None:
        terminal.attach()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may have been started with nohup

    running = Running(before=before)
    try:
        running.signal(signal.SIGHUP)
        running.until_printed("reloading")
        terminal.close()
        code, out, _ = running.ended()
    finally:
        running.clean_up()
    # The kernel sends the signal shortly before it takes the terminal away.
    assert (code, out.removeprefix("reloading\n")) == (0, "closing\nclosed\n")


def test_nohup_outlives_its_terminal() -> None:
    terminal = Terminal()

    def before() -> None:
        terminal.attach()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    running = Running(before=before)
    try:
        terminal.close()
        running.until_printed("reloading")
        running.signal(signal.SIGTERM)
        code, out, _ = running.ended()
    finally:
        running.clean_up()
    assert (code, out) == (0, "closing\nclosed\n")


def test_the_lifelines_end_drains_and_exits_0(running: Running) -> None:
    running.cut_lifeline()
    assert running.ended() == (0, "closing\nclosed\n", "")


@how("refuses")
def test_a_program_that_cannot_start_says_one_sentence_and_exits_1(running: Running) -> None:
    assert running.ready == ""
    code, _, err = running.ended()
    assert (code, err) == (1, "quafka: the disk is made of cheese\n")


@how("hangs")
def test_a_drain_has_a_deadline(running: Running) -> None:
    running.signal(signal.SIGTERM)
    code, out, err = running.ended()
    assert (code, out) == (0, "closing\n")
    assert "requests unanswered" in err


@pytest.mark.parametrize("kind", ["thread", "pool"])
def test_a_thread_that_a_store_keeps_waiting_does_not_keep_the_process(kind: str) -> None:
    running = Running(f"leaves-a-{kind}")
    try:
        running.signal(signal.SIGTERM)
        code, out, err = running.ended()
    finally:
        running.clean_up()
    assert (code, out) == (0, "closing\nclosed\n")
    assert "ends without threads" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("how", "printed"), [("starts-for-ever", "closing\nclosed\n"), ("recovers-for-ever", "")]
)
def test_a_stop_does_not_wait_for_a_start_without_end(how: str, printed: str, number: int) -> None:
    """Threads may be in the middle of a recovery's files, so nothing is closed beneath them."""
    started = Running(how, gets_ready=False)
    try:
        started.until_printed("starting")
        started.signal(number)
        code, out, err = started.ended()
    finally:
        started.clean_up()
    assert (code, out, started.ready) == (0, printed, "")
    assert "stopped during the start" in err


def test_a_recovery_ends_before_the_program_does() -> None:
    started = Running("recovers", gets_ready=False)
    try:
        started.until_printed("starting")
        started.signal(signal.SIGTERM)
        assert started.ended() == (0, "closing\nclosed\n", "")
        assert started.ready
    finally:
        started.clean_up()


@how("hangs")
def test_a_second_ctrl_c_does_not_wait(running: Running) -> None:
    running.signal(signal.SIGINT)
    running.until_printed("closing")
    running.signal(signal.SIGINT)
    assert running.ended() == (130, "", "")


@how("hangs")
def test_a_second_sigterm_does_not_cut_the_drain_short(running: Running) -> None:
    """A service manager signals the whole group; `up` then signals its children as well."""
    running.signal(signal.SIGTERM)
    running.until_printed("closing")
    running.signal(signal.SIGTERM)
    code, _, err = running.ended()
    assert code == 0
    assert "requests unanswered" in err


@how("loop-error")
def test_an_error_in_the_loop_is_logged(running: Running) -> None:
    running.signal(signal.SIGTERM)
    code, _, err = running.ended()
    assert code == 0
    assert "invalid literal for int() with base 10: 'cheese'" in err


@pytest.mark.parametrize(
    ("running", "end"), [(("cycles-left",), "freed"), (("cycles",), "kept")], indirect=["running"]
)
def test_old_cycles_are_searched_for_where_a_program_leaves_them(
    running: Running, end: str
) -> None:
    running.until_printed(end)
    running.signal(signal.SIGTERM)
    assert running.ended()[0] == 0
