"""Supervision of real child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quafka import supervise as module
from quafka.supervise import Child, supervise

SMALL = Path(__file__).with_name("small.py")
SECONDS = 60.0


class Family:
    """Children that write one journal, and their supervisor."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal"
        self.journal.touch()
        self.children: list[Child] = []
        self.extra: Child | None = None
        self.greeted = asyncio.Event()
        self._supervisor: asyncio.Task[int] | None = None

    def add(self, name: str, how: str = "good") -> Child:
        child = self.make(name, how)
        self.children.append(child)
        return child

    def make(self, name: str, how: str, listening_fd: int | None = None) -> Child:
        def arguments() -> dict[str, str]:
            return {"--journal": str(self.journal), "--port": child.ready.get("port", "")}

        command = (sys.executable, "-S", str(SMALL), name, how)
        child = Child(name, command, arguments, {"SMALL": name}, listening_fd)
        return child

    def start(self) -> asyncio.Task[int]:
        self._supervisor = asyncio.create_task(
            supervise(self.children, self.greeted.set, self.extra)
        )
        return self._supervisor

    async def started(self) -> asyncio.Task[int]:
        task = self.start()
        await asyncio.wait_for(self.greeted.wait(), SECONDS)
        return task

    async def clean_up(self) -> None:
        if self._supervisor is not None and not self._supervisor.done():
            interrupt()
            await asyncio.sleep(0.05)
            interrupt()
            await asyncio.wait((self._supervisor,))

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines()

    def pids(self, name: str) -> list[int]:
        starts = [line.split() for line in self.lines() if line.startswith(f"{name} starts")]
        return [int(words[-2]) for words in starts]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not true():
                await asyncio.sleep(0.01)


@pytest.fixture
async def family(tmp_path: Path) -> Family:
    return Family(tmp_path)


@pytest.fixture(autouse=True)
def _extra_children_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EXTRA_SECONDS", 0.0)


@pytest.fixture(autouse=True)
async def _no_child_is_left(family: Family) -> object:
    yield
    await family.clean_up()
    for name in ("first", "second", "extra"):
        for pid in family.pids(name):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def ended(task: Awaitable[int]) -> int:
    return await asyncio.wait_for(task, SECONDS)


async def test_children_start_in_order_and_stop_in_reverse(
    family: Family, capsys: pytest.CaptureFixture[str]
) -> None:
    family.add("first")
    family.add("second")
    task = await family.started()
    interrupt()
    assert await ended(task) == 0
    assert [line.partition(" starts ")[:2] for line in family.lines()] == [
        ("first", " starts "), ("second", " starts "),
        ("second is told to stop", ""), ("first is told to stop", ""),
    ]  # fmt: skip
    assert capsys.readouterr().out.endswith("stopped\n")


async def test_sigterm_stops_as_ctrl_c_does(family: Family) -> None:
    family.add("first")
    task = await family.started()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await ended(task) == 0
    assert family.lines()[-1] == "first is told to stop"


async def test_sighup_is_passed_on_to_children_that_are_ready(family: Family) -> None:
    family.add("first")
    family.add("second", "slow")
    task = family.start()
    await family.until(lambda: len(family.pids("second")) == 1)
    os.kill(os.getpid(), signal.SIGHUP)
    await family.until(lambda: "first reloads" in family.lines())
    interrupt()
    assert await ended(task) == 0
    assert "second reloads" not in family.lines()
    assert len(family.pids("first")) == 1


async def test_ctrl_c_at_the_terminal_does_not_reach_the_children(family: Family) -> None:
    family.add("first")
    await family.started()
    assert family.lines()[0].endswith(" True")  # leads a session of its own


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_child_that_ends_comes_back_with_its_port(
    family: Family, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    child = family.add("first")
    family.add("second")
    task = await family.started()
    os.kill(family.pids("first")[0], number)
    await family.until(lambda: len(family.pids("first")) == 2)
    assert [line for line in family.lines() if line.startswith("first starts 7")]
    assert child.ready == {"port": "7"}
    assert len(family.pids("second")) == 1
    interrupt()
    assert await ended(task) == 0
    reason = "Killed" if number == signal.SIGKILL else "exit code 0"
    assert f"the first ended ({reason}); restarting it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("healthy", "pauses"),
    [(SECONDS, ["0.01", "0.02", "0.04", "0.04"]), (0.0, ["0.01", "0.01", "0.01", "0.01"])],
)
async def test_a_child_that_keeps_ending_is_started_ever_more_slowly(
    family: Family,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    healthy: float,
    pauses: list[str],
) -> None:
    monkeypatch.setattr(module, "_BACKOFF_SECONDS", (0.01, 0.04))
    monkeypatch.setattr(module, "_HEALTHY_SECONDS", healthy)
    family.add("first")
    task = await family.started()
    said = ""
    for count in range(1, 5):
        os.kill(family.pids("first")[-1], signal.SIGKILL)
        while said.count("ready again") < count:
            said += capsys.readouterr().out
            await asyncio.sleep(0.01)
    interrupt()
    assert await ended(task) == 0
    assert [line.split()[-2] for line in said.splitlines() if "restarting it in" in line] == pauses


async def test_ctrl_c_while_a_child_is_down_is_a_clean_end(
    family: Family, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BACKOFF_SECONDS", (SECONDS, SECONDS))
    family.add("first")
    family.add("second")
    task = await family.started()
    os.kill(family.pids("first")[0], signal.SIGKILL)
    said = ""
    while "restarting it" not in said:
        said += capsys.readouterr().out
        await asyncio.sleep(0.01)
    interrupt()
    assert await ended(task) == 0
    assert len(family.pids("first")) == 1


async def test_a_child_that_cannot_start_ends_all_with_its_code(family: Family) -> None:
    family.add("first")
    family.add("second", "refuses")
    assert await ended(family.start()) == 3
    assert not family.greeted.is_set()
    assert family.lines()[-1] == "first is told to stop"


async def test_nothing_starts_after_one_that_cannot(family: Family) -> None:
    family.add("first", "refuses")
    family.add("second")
    assert await ended(family.start()) == 3
    assert family.pids("second") == []


async def test_ctrl_c_is_heard_while_a_child_is_still_starting(
    family: Family, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SLOW_START_SECONDS", 0.05)
    family.add("first", "slow")
    family.add("second")
    task = family.start()
    said = ""
    while "the first is not ready yet" not in said:
        said += capsys.readouterr().out
        await asyncio.sleep(0.01)
    await family.until(lambda: len(family.pids("first")) == 1)
    interrupt()
    assert await ended(task) == 0
    assert family.pids("second") == []
    assert family.lines()[-1] == "first is told to stop"


async def test_a_child_that_starts_in_time_is_not_called_late(
    family: Family, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SLOW_START_SECONDS", 300.0)
    loop, notices = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def noted(delay: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, callback, *arguments)
        if callback is module.say:
            notices.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", noted)
    family.add("first")
    await family.started()
    assert [each.cancelled() for each in notices] == [True]
    assert "not ready" not in capsys.readouterr().out


async def test_a_second_ctrl_c_kills(family: Family) -> None:
    family.add("first", "deaf")
    family.add("second")
    task = await family.started()
    interrupt()
    await family.until(lambda: "second is told to stop" in family.lines())
    interrupt()
    assert await ended(task) == 1


async def test_a_child_that_does_not_end_is_killed(
    family: Family, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.1)
    family.add("first", "deaf")
    task = await family.started()
    interrupt()
    assert await ended(task) == 1
    assert "the first does not stop; killing it" in capsys.readouterr().out


async def test_the_lifeline_tells_a_child_that_it_is_alone(family: Family) -> None:
    child = family.add("first", "deaf")
    await family.started()
    child._cut_lifeline()  # as the kernel does when this process is killed
    await family.until(lambda: "first is alone" in family.lines())


async def test_an_extra_child_starts_after_the_greeting_and_stops_last(family: Family) -> None:
    family.add("first")
    family.extra = family.make("extra", "good")
    task = await family.started()
    await family.until(lambda: len(family.pids("extra")) == 1)
    interrupt()
    assert await ended(task) == 0
    assert [line.split()[0] for line in family.lines()] == ["first", "extra", "first", "extra"]


async def test_an_extra_child_that_dies_comes_back_with_its_socket(family: Family) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        family.extra = family.make("extra", "listens", listening.fileno())
        family.add("first")
        task = await family.started()
        for killed in range(2):
            await family.until(lambda: family.lines().count("extra has its socket") == killed + 1)  # noqa: B023
            os.kill(family.pids("extra")[-1], signal.SIGKILL)
        await family.until(lambda: len(family.pids("extra")) == 3)
        assert len(family.pids("first")) == 1
        interrupt()
        assert await ended(task) == 0


async def test_an_extra_child_that_cannot_start_is_a_warning(
    family: Family, capsys: pytest.CaptureFixture[str]
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    family.add("first")
    family.extra = family.make("extra", "refuses", listening.detach())
    task = await family.started()
    said = ""
    while "the extra cannot start (exit code 3); going on without it" not in said:
        said += capsys.readouterr().out
        await asyncio.sleep(0.01)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    interrupt()
    assert await ended(task) == 0
    assert len(family.pids("extra")) == len(family.pids("first")) == 1
