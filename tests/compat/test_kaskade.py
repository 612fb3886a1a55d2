"""Kaskade as people see it: the program itself in a terminal, a group and its lag on the screen."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import Cluster
from tests.support.group_members import GROUPS, PARTITIONS, fill, member, owned, until
from tests.support.python_packages import installed, needs_package

pytestmark = pytest.mark.long

TOPIC, COUNT, READ = "looked-at", 40, 7
LAG = COUNT - PARTITIONS * READ
KASKADE = "kaskade==5.1.0"
_ESCAPE = re.compile(
    r"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|[P_\]].*?(\x1b\\|\x07)|[()].|[=>78])", re.DOTALL
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One topic, and a group with one member that is behind in it."""
    with Cluster(tmp_path_factory.mktemp("looked-at"), broker_args=GROUPS) as running:
        fill(running, TOPIC, COUNT)
        consumer = member(running, "watchers", TOPIC, {"session.timeout.ms": 60_000})
        until(lambda: len(owned(consumer)) == PARTITIONS, consumer)
        _commit(consumer)
        yield running
        consumer.close()


def _commit(consumer: Consumer) -> None:
    places = [TopicPartition(TOPIC, partition, READ) for partition in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)


class Terminal:
    """A program in a terminal, and all that it has written there."""

    def __init__(self, command: list[str], **variables: str) -> None:
        self._fd, other = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "45"} | variables
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=env)
        os.close(other)
        self._written = b""

    @property
    def text(self) -> str:
        return _ESCAPE.sub(" ", self._written.decode(errors="replace"))

    def until(self, pattern: str, seconds: float = 50) -> str:
        """Wait until this is written, and forget what was written before its end."""
        give_up = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < give_up, self.text[-3_000:]
            if select.select([self._fd], [], [], 0.2)[0]:
                self._written += os.read(self._fd, 1 << 16)
        text, self._written = self.text, b""
        return text

    def press(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


@needs_package(KASKADE, alone_there=False)
def test_kaskade(cluster: Cluster, tmp_path: Path) -> None:
    packages = installed(KASKADE, alone_there=False)
    command = [sys.executable, str(packages / "bin" / "kaskade"), "admin", "-b", cluster.bootstrap]
    terminal = Terminal(command, HOME=str(tmp_path), PYTHONPATH=str(packages))
    try:
        # Partitions, replicas, in sync, groups, members, records, lag.
        said = terminal.until(rf"{TOPIC}\s+{PARTITIONS}\s+1\s+1\s+1\s+1\s+≈{COUNT}\s+≈{LAG}\s")
        terminal.press(b"d")
        said += terminal.until(r"Configurations \[\d\d\].*Groups \[1\].*Group Members \[1\]")
    finally:
        terminal.close()
    assert "error" not in said.lower()
