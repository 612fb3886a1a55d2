"""`quafka up`, as a person runs it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.request import urlopen

import pytest

from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.raw_client import RawClient

START_SECONDS = 20.0
PROGRAMS = ("broker", "gateway", "console")


class Up:
    """A `quafka up` process on a free port. `console`: whether it runs one, at a free port."""

    def __init__(
        self, data: Path, listen: str = "127.0.0.1:0", *args: str, console: str = "false"
    ) -> None:
        command = [sys.executable, "-m", "quafka", "up", "--listen", listen, "--data", str(data)]
        command += ["--gateway-ops-listen", "127.0.0.1:0", "--broker-ops-listen", "127.0.0.1:0"]
        command += ["--console", console, "--console-listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.printed: list[str] = []

    def wait_ready(self) -> tuple[str, int]:
        """Read what is printed up to the line that says how to stop; the Kafka address."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line)
            if "Ctrl-C" in line:
                break
        found = re.search(r"Kafka clients +127\.0\.0\.1:(\d+)", "".join(self.printed))
        assert found, self.printed
        return "127.0.0.1", int(found.group(1))

    def children(self) -> dict[str, int]:
        """Process ids by program name."""
        pid = self.process.pid
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found: dict[str, int] = {}
        for child in listed:
            command = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            found |= {name: int(child) for name in PROGRAMS if name in command}
        return found

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C; the exit code and all that was printed."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=20)
        return self.process.returncode, "".join(self.printed) + rest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path / "data") as running:
        yield running


def until_served(address: tuple[str, int]) -> None:
    """Wait until the gateway reaches its broker; both may still be restarting."""
    deadline = time.monotonic() + 15
    while True:
        with suppress(OSError), RawClient(address) as client:
            metadata(client, "again")
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_records_survive_ctrl_c_and_a_new_start(up: Up, tmp_path: Path) -> None:
    address = up.wait_ready()
    with RawClient(address) as client:
        metadata(client, "kept")
        produce(client, "kept", b"a", b"b")
    code, printed = up.interrupt()
    assert code == 0, printed
    assert "Traceback" not in printed

    with Up(tmp_path / "data") as second:
        with RawClient(second.wait_ready()) as client:
            assert values(fetch(client, "kept", 0)) == [b"a", b"b"]
        assert second.interrupt()[0] == 0


@pytest.mark.long
def test_a_killed_child_comes_back_on_its_port(up: Up) -> None:
    address = up.wait_ready()
    assert "open to everyone on this host" in "".join(up.printed)
    with RawClient(address) as client:
        metadata(client, "kept")
        produce(client, "kept", b"a")
    for name in ("broker", "gateway"):
        os.kill(up.children()[name], signal.SIGKILL)
        until_served(address)
        with RawClient(address) as client:
            assert values(fetch(client, "kept", 0)) == [b"a"], name
    assert up.interrupt()[0] == 0


@pytest.mark.long
def test_children_stop_when_up_is_killed(up: Up) -> None:
    up.wait_ready()
    children = up.children()
    assert sorted(children) == ["broker", "gateway"]
    up.process.kill()
    deadline = time.monotonic() + 15
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in children.values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
def test_two_run_side_by_side(tmp_path: Path) -> None:
    with Up(tmp_path / "one") as one, Up(tmp_path / "two") as two:
        assert one.wait_ready() != two.wait_ready()
        assert one.interrupt()[0] == two.interrupt()[0] == 0


@pytest.fixture
def up_with_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with Up(tmp_path / "data", console="true") as running:
        yield running


def page(url: str) -> str:
    """A page of the console. The connection waits while the console starts."""
    with urlopen(url, timeout=START_SECONDS) as found:
        return str(found.read(), "utf-8")


def until_it_shows(url: str, words: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while words not in page(url):
        assert time.monotonic() < deadline, f"{url} does not show {words}"
        time.sleep(0.2)


def test_the_console_has_the_cluster_and_its_traces(up_with_console: Up) -> None:
    up = up_with_console
    address = up.wait_ready()
    found = re.search(r"console +(http://127\.0\.0\.1:\d+/)\n", "".join(up.printed))
    assert found, up.printed
    console = found.group(1)
    assert f"traces          {console}traces\n" in "".join(up.printed)
    with RawClient(address) as client:
        metadata(client, "shown-topic")
        produce(client, "shown-topic", b"a")
    until_it_shows(f"{console}topics", "shown-topic")
    until_it_shows(f"{console}traces", "Produce")
    code, printed = up.interrupt()
    assert code == 0, printed
    assert "Traceback" not in printed


@pytest.mark.long
def test_a_killed_console_comes_back_and_the_others_do_not_notice(up_with_console: Up) -> None:
    up = up_with_console
    address = up.wait_ready()
    console = re.search(r"console +(\S+)", "".join(up.printed))
    assert console
    page(console.group(1))
    before = up.children()
    os.kill(before["console"], signal.SIGKILL)
    assert "Overview" in page(console.group(1)), "the connection waits for the next one"
    after = up.children()
    assert after.pop("console") != before.pop("console")
    assert after == before
    with RawClient(address) as client:
        metadata(client, "kept")
    code, printed = up.interrupt()
    assert code == 0, printed
    assert "the console is ready again" in printed


@pytest.mark.long
def test_a_console_that_cannot_start_takes_nothing_down(tmp_path: Path) -> None:
    with Up(tmp_path / "data", console="true") as up:
        address = up.wait_ready()
        while "console" not in (found := up.children()):
            time.sleep(0.01)
        os.kill(found["console"], signal.SIGKILL)
        assert up.process.stdout is not None
        assert any("the console cannot start" in line for line in up.process.stdout)
        with RawClient(address) as client:
            metadata(client, "served")
        assert up.interrupt()[0] == 0


def failure(data: Path, listen: str = "127.0.0.1:0", *args: str) -> tuple[int, str]:
    """Exit code and output of an `up` that cannot start."""
    with Up(data, listen, *args) as process:
        printed, _ = process.process.communicate(timeout=START_SECONDS)
        return process.process.returncode, printed


def test_a_port_in_use_is_one_sentence_and_exit_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, printed = failure(tmp_path / "data", listen)
    assert code == 1
    assert f"cannot listen on {listen}" in printed
    assert "Traceback" not in printed


@pytest.mark.long
def test_a_configured_operations_port_in_use_is_one_sentence_and_exit_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, printed = failure(tmp_path, "127.0.0.1:0", "--broker-ops-listen", address)
    assert code == 1
    assert f"cannot listen on {address} (operations)" in printed
    assert "Traceback" not in printed


@pytest.mark.long
def test_a_held_data_folder_is_one_sentence_and_exit_1(up: Up, tmp_path: Path) -> None:
    up.wait_ready()
    code, printed = failure(tmp_path / "data")
    assert code == 1
    assert str(tmp_path / "data") in printed
    assert "another broker" in printed
    assert "Traceback" not in printed


@pytest.mark.long
def test_an_unwritable_data_folder_is_one_sentence_and_exit_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    code, printed = failure(tmp_path / "file" / "data")
    assert code == 1
    assert str(tmp_path / "file") in printed
    assert "Traceback" not in printed


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--wal-fsync", "sometimes"), ("wal.fsync", "sometimes", "commit", "never")),
        (("--num-partitions", "0"), ("num.partitions", "0")),
    ],
)
def test_a_wrong_setting_names_itself_and_exits_2(
    tmp_path: Path, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    code, printed = failure(tmp_path / "data", "127.0.0.1:0", *args)
    assert code == 2
    for word in words:
        assert word in printed
