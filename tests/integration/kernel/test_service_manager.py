"""What a service manager receives on a real datagram socket, as sd_notify(3) describes it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

from quafka.service_manager import ServiceManager
from tests.integration.kernel.test_process import Running
from tests.integration.kernel.test_supervise import Family, interrupt

SECONDS = 60.0


class Manager:
    """The socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(SECONDS)

    def __enter__(self) -> Manager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._socket.close()

    def message(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def is_silent(self) -> bool:
        """Whether no message waits: messages are there when their sender goes on."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(SECONDS)
        return False


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = f"@quafka-tests-{os.getpid()}-{time.monotonic_ns()}"
    address = name if request.param == "abstract" else str(tmp_path / "notify")
    with Manager(address) as found:
        yield found


def test_ready_and_stopping(manager: Manager) -> None:
    reporter = ServiceManager.from_environment({"NOTIFY_SOCKET": manager.address})
    reporter.ready("listen here:1\nREADY=0")
    assert manager.message() == ["READY=1", "STATUS=listen here:1 READY=0"]
    reporter.stopping()
    assert manager.message()[0] == "STOPPING=1"


def test_a_reload_between_two_readings_of_the_clock(manager: Manager) -> None:
    reporter = ServiceManager.from_environment({"NOTIFY_SOCKET": manager.address})
    reporter.ready("")
    manager.message()
    before = time.monotonic_ns() // 1000
    reporter.reloading()
    first, second = manager.message()
    assert first == "RELOADING=1"
    name, _, at = second.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(at) <= time.monotonic_ns() // 1000
    reporter.reloaded()
    assert manager.message() == ["READY=1"]


def test_a_reload_during_the_start_is_not_the_end_of_it(manager: Manager) -> None:
    reporter = ServiceManager.from_environment({"NOTIFY_SOCKET": manager.address})
    reporter.reloading()
    reporter.reloaded()
    assert manager.is_silent()


@pytest.mark.parametrize("pid", [{}, {"WATCHDOG_PID": str(os.getpid())}], ids=["any", "own"])
async def test_the_loop_reports_that_it_lives(manager: Manager, pid: dict[str, str]) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "20000", **pid}
    ServiceManager.from_environment(environment).ready("")
    assert manager.message()[0] == "READY=1"
    for _ in range(3):
        assert await asyncio.to_thread(manager.message) == ["WATCHDOG=1"]
    # A loop that is busy says nothing: what was on time is received, then nothing comes.
    while not manager.is_silent():
        pass
    time.sleep(0.05)
    assert manager.is_silent()


@pytest.mark.parametrize(
    "watchdog",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "garbage"},
     {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}],
    ids=["none", "off", "garbage", "of another process"],
)  # fmt: skip
async def test_without_a_watchdog_of_its_own(manager: Manager, watchdog: dict[str, str]) -> None:
    reporter = ServiceManager.from_environment({"NOTIFY_SOCKET": manager.address, **watchdog})
    reporter.ready("")
    assert manager.message()[0] == "READY=1"
    await asyncio.sleep(0.05)
    assert manager.is_silent()


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "/does/not/exist"])
def test_without_a_manager_that_hears_it(address: str, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager.from_environment({"NOTIFY_SOCKET": address}).ready("")
    assert ("cannot report READY=1" in caplog.text) == (address == "/does/not/exist")


def test_a_program_reports_its_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Manager(str(tmp_path / "notify")) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
        running = Running()
        try:
            assert manager.message() == ["READY=1", "STATUS=listen here:1"]
            running.signal(signal.SIGHUP)
            assert manager.message()[0] == "RELOADING=1"
            assert manager.message() == ["READY=1"]
            running.signal(signal.SIGTERM)
            assert manager.message()[0] == "STOPPING=1"
            assert running.ended()[0] == 0
        finally:
            running.clean_up()


def test_a_start_that_fails_is_never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Manager(str(tmp_path / "notify")) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
        running = Running("refuses", gets_ready=False)
        try:
            assert running.ended()[0] == 1
            assert manager.is_silent()
        finally:
            running.clean_up()


async def test_several_programs_report_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Manager(str(tmp_path / "notify")) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
        family = Family(tmp_path)
        family.add("broker")
        family.add("gateway")
        try:
            task = await family.started()
            assert manager.message() == ["READY=1", "STATUS=broker ready, gateway ready"]
            os.kill(os.getpid(), signal.SIGHUP)
            await family.until(lambda: "gateway reloads" in family.lines())
            assert manager.message()[0] == "RELOADING=1"
            assert manager.message() == ["READY=1"]
            interrupt()
            assert await task == 0
            assert manager.message()[0] == "STOPPING=1"
            assert manager.is_silent()
        finally:
            await family.clean_up()
