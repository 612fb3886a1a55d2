"""Kafka Connect's distributed workers, and the connector that reads lines of a file."""

from __future__ import annotations

import json
import random
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.support.isolated_reader import IsolatedReader
from tests.support.java import jar, java_class, kafka_tools
from tests.support.kafka_calls import create_topic
from tests.support.ports import lasting_port
from tests.support.raw_client import RawClient

_KAFKA = "4.3.0"
"""The connectors of files are not published for 4.4."""
SECONDS = 40.0
STATE = {kind: f"connect-{kind}" for kind in ("config", "offset", "status")}
_CONNECTOR = "org.apache.kafka.connect.file.FileStreamSourceConnector"
_TOPIC = "lines"


def connect_jars() -> list[Path]:
    """The jars of a worker, with the connectors of files."""
    return [*kafka_tools(_KAFKA), _connect_file()]


def _connect_file() -> Path:
    return jar("org.apache.kafka", "connect-file", _KAFKA)


def _settings(bootstrap: str, port: int, more: dict[str, object]) -> str:
    """A worker's properties."""
    converter = "org.apache.kafka.connect.storage.StringConverter"
    lines: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "key.converter": converter,
        "value.converter": converter,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        **{f"{kind}.storage.topic": name for kind, name in STATE.items()},
        **{f"{kind}.storage.replication.factor": 1 for kind in STATE},
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def ask(url: str, body: object = None) -> object:
    """A request of a worker's REST API: POST if it has a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        read = answer.read()
    found: object = json.loads(read) if read else None
    return found


class Worker:
    """A worker; `url` is that of its connectors."""

    def __init__(self, folder: Path, bootstrap: str, name: str = "worker", **more: object) -> None:
        port = lasting_port()
        self.url = f"http://127.0.0.1:{port}/connectors"
        self._folder = folder
        self._log = folder / f"{name}.log"
        self._properties = folder / f"{name}.properties"
        settings = {key.replace("_", "."): value for key, value in more.items()}
        self._properties.write_text(_settings(bootstrap, port, settings))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = java_class("org.apache.kafka.connect.cli.ConnectDistributed", connect_jars())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._properties)], stdout=log, stderr=log, cwd=self._folder
            )

    def wait_answers(self) -> None:
        """Wait until it has read its topics."""
        assert self._process is not None
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                ask(self.url)
            except OSError:  # not listening, or still reading its topics
                time.sleep(0.1)
            else:
                return
        raise AssertionError(self._log.read_text()[-3000:])

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(SECONDS)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def worker(folder: Path, bootstrap: str) -> Generator[str]:
    """A worker that answers; its URL."""
    folder.mkdir(exist_ok=True)
    one = Worker(folder, bootstrap, offset_flush_interval_ms=100)
    one.start()
    try:
        one.wait_answers()
        yield one.url
    finally:
        one.stop()


class ExactlyOnceSource:
    """Two workers, and a connector that copies a growing file, with `exactly.once.support`."""

    def __init__(self, folder: Path, address: tuple[str, int]) -> None:
        self._address = address
        bootstrap = f"{address[0]}:{address[1]}"
        self._lines = folder / "lines"
        self._lines.write_text("")
        self.written = 0
        self._workers = [
            Worker(
                folder,
                bootstrap,
                f"worker-{number}",
                exactly_once_source_support="enabled",
                scheduled_rebalance_max_delay_ms=0,
                session_timeout_ms=3_000,
                heartbeat_interval_ms=500,
            )
            for number in range(2)
        ]

    def __enter__(self) -> Self:
        with RawClient(self._address) as client:
            create_topic(client, _TOPIC, 1)
        for one in self._workers:
            one.start()
        for one in self._workers:
            one.wait_answers()
        config = {
            "connector.class": _CONNECTOR,
            "file": str(self._lines),
            "topic": _TOPIC,
            "exactly.once.support": "required",
            "producer.override.transaction.timeout.ms": 5_000,
        }
        ask(self._workers[0].url, {"name": "source", "config": config})
        return self

    def __exit__(self, *exc_info: object) -> None:
        for one in self._workers:
            one.kill()

    def write(self, count: int) -> None:
        """Append numbered lines to the file."""
        with self._lines.open("a") as lines:
            lines.writelines(f"{self.written + n}\n" for n in range(count))
        self.written += count

    def kill(self, rng: random.Random) -> None:
        """kill -9 of a worker, and start it again."""
        one = rng.choice(self._workers)
        one.kill()
        one.start()

    def revive(self) -> str:
        """Start a task that has failed again: Connect leaves that to operators. The states."""
        for one in self._workers:
            with suppress(OSError, ValueError):
                status = str(ask(f"{one.url}/source/status"))
                if "FAILED" in status:
                    ask(f"{one.url}/source/restart?includeTasks=true&onlyFailed=true", {})
                return status
        return "no worker answers"

    def wait_copied(self, seconds: float) -> None:
        """Wait until each line is there once, in order, and the source's offset is the end."""
        reader = IsolatedReader(_TOPIC, 1, committed=True)
        copied, deadline, revive = 0, time.monotonic() + seconds, time.monotonic() + 10
        status = ""
        with RawClient(self._address) as client:
            while copied < self.written or not reader.is_at_end():
                for _, record in reader.poll(client, 100):
                    what = f"{record.value!r} at {record.offset}"
                    assert record.value == b"%d" % copied, f"{what}, not {copied}"
                    copied += 1
                if time.monotonic() > revive:
                    status, revive = self.revive(), time.monotonic() + 10
                what = f"{copied} of {self.written}: {status}"
                assert time.monotonic() < deadline, what
            *_, position = self._positions(client)
        assert position == self._lines.stat().st_size, position

    def _positions(self, client: RawClient) -> Iterator[int]:
        """The source's offsets: bytes of the file."""
        reader = IsolatedReader(STATE["offset"], 25, committed=True)
        while not reader.is_at_end():
            for _, record in reader.poll(client):
                if record.value:
                    yield json.loads(record.value)["position"]


def copy_lines(
    folder: Path,
    address: tuple[str, int],
    disturb: Sequence[Callable[[random.Random], None]],
    seconds: float,
    seed: int,
    *,
    between: tuple[float, float] = (2.0, 12.0),
) -> Counter[str]:
    """Write lines and kill for so long; what was done. Fails unless the copy is exact."""
    rng, done = random.Random(seed), Counter[str]()
    with ExactlyOnceSource(folder, address) as source:
        source.write(10)
        source.wait_copied(SECONDS)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pause = time.monotonic() + rng.uniform(*between)
            while time.monotonic() < pause:
                source.write(rng.randrange(50))
                time.sleep(rng.uniform(0.0, 0.3))
            if rng.random() < 0.4:
                source.kill(rng)
                done["worker killed"] += 1
            else:
                rng.choice(disturb)(rng)
                done["server disturbed"] += 1
            source.revive()
        source.wait_copied(100)
        done["lines"] = source.written
    return done
