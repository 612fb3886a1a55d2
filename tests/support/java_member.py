"""Kafka's own consumers in processes of their own, told what to do a line at a time."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.java import java_command, kafka_clients

_PROGRAMS = Path(__file__).parents[1] / "compat" / "java"


class Java:
    """A program that answers each line with lines up to a dot."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()

    def ask(self, command: str) -> list[str]:
        self.tell(command)
        return self.answer()

    def answer(self) -> list[str]:
        """Of a command that was told."""
        assert self._process.stdout is not None
        found: list[str] = []
        while (line := self._process.stdout.readline().rstrip("\n")) != ".":
            assert line or self._process.poll() is None, "the program ended"
            found.append(line)
        return found

    def poll(self) -> list[bytes]:
        return [line.encode() for line in self.ask("poll")]

    def owned(self) -> set[tuple[str, int]]:
        places = [line.rsplit("-", 1) for line in self.ask("owned")]
        return {(topic, int(partition)) for topic, partition in places}


@contextmanager
def java_member(
    cluster: Cluster, group: str, topics: str, *settings: str, program: str = "Member"
) -> Iterator[Java]:
    """A KafkaConsumer in a process of its own. `topics`: names, or /a pattern/."""
    command = java_command(_PROGRAMS / f"{program}.java", kafka_clients())
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        member = Java(process)
        member.tell(cluster.bootstrap, topics, f"group.id={group}", *settings, "")
        yield member
    finally:
        process.kill()
        process.communicate()
