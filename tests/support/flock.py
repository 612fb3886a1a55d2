"""Processes that are members of one group, in several languages; and what they have processed.

Every member says what it has processed before it commits. So what is committed must have been
said by somebody: what was not is a record that a kill, a pause or a rebalance has skipped.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.support.java import java_class, kafka_tools
from tests.support.needs import program
from tests.support.worker import HEARTBEAT_MS, MEMBERS, SESSION_MS

_PLACE = re.compile(r"(?:Partition:)?(\d+)\s(?:Offset:)?(\d+)$")
_PROPERTIES = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": "200",
    "session.timeout.ms": str(SESSION_MS),
    "heartbeat.interval.ms": str(HEARTBEAT_MS),
}
_STRATEGY = "partition.assignment.strategy"


@dataclass
class Worker:
    """One member."""

    kind: str
    process: subprocess.Popen[bytes]
    path: Path
    log: IO[bytes]

    @property
    def said(self) -> list[str]:
        """Its whole lines so far; of one that was killed the last may be cut."""
        return self.path.read_text().rpartition("\n")[0].splitlines()

    @property
    def processed(self) -> set[tuple[int, int]]:
        """Partition and offset."""
        found = (_PLACE.match(line) for line in self.said)
        return {(int(match[1]), int(match[2])) for match in found if match}

    @property
    def refused(self) -> list[str]:
        """What it was not allowed to commit."""
        return [line for line in self.said if line.startswith("refused")]

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has come."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def end(self) -> None:
        """Kill it if it is still there."""
        self.process.kill()
        self.process.wait()
        self.log.close()


class Flock:
    """All members of one group over one topic."""

    def __init__(
        self, folder: Path, bootstrap: str, group: str, topic: str, partitions: int
    ) -> None:
        self.workers: list[Worker] = []
        self._folder = folder
        self._job = {"bootstrap": bootstrap, "group": group, "topic": topic}
        self._partitions = partitions
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": 5_000,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for worker in self.workers:
            worker.end()

    # --- members ----------------------------------------------------------------------------

    def start(self, kind: str, **job: Any) -> Worker:
        """One more. `job`: see `tests.support.worker`."""
        path = self._folder / f"worker-{len(self.workers)}"
        log = path.with_suffix(".log").open("wb")
        with path.open("wb") as out:
            process = subprocess.Popen(
                self._command(kind, {"kind": kind, **self._job, **job}), stdout=out, stderr=log
            )
        worker = Worker(kind, process, path, log)
        self.workers.append(worker)
        return worker

    def _command(self, kind: str, job: dict[str, Any]) -> list[str]:
        if kind in MEMBERS:
            return [sys.executable, "-m", "tests.support.worker", json.dumps(job)]
        if kind == "kafkajs":
            return ["node", job["script"], json.dumps(job)]
        if kind == "kcat":
            return self._kcat(job)
        range_class = "org.apache.kafka.clients.consumer.RangeAssignor"
        properties = _words({**_PROPERTIES, _STRATEGY: range_class})
        printed = {"partition": "true", "offset": "true", "value": "false"}
        return [
            *java_class("org.apache.kafka.tools.consumer.ConsoleConsumer", kafka_tools()),
            *("--bootstrap-server", job["bootstrap"]),
            *("--topic", job["topic"], "--group", job["group"]),
            *(word for each in properties for word in ("--command-property", each)),
            *(w for n, v in printed.items() for w in ("--formatter-property", f"print.{n}={v}")),
        ]

    def _kcat(self, job: dict[str, Any]) -> list[str]:
        settings = _words({**_PROPERTIES, _STRATEGY: "range"})
        command = [program("kcat"), "-b", job["bootstrap"], "-u", "-q", "-f", "%p %o\\n"]
        command += [word for each in settings for word in ("-X", each)]
        return [*command, "-G", job["group"], job["topic"]]

    def stop(self) -> None:
        """Let all leave."""
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        for worker in self.workers:
            worker.process.wait(20)

    # --- what is true of all ----------------------------------------------------------------

    @property
    def processed(self) -> set[tuple[int, int]]:
        return {place for worker in self.workers for place in worker.processed}

    def committed(self) -> dict[int, int]:
        """By partition; asked until there is an answer, since brokers are being killed."""
        give_up = time.monotonic() + 30
        while True:
            try:
                return self._committed()
            except KafkaException:
                if time.monotonic() > give_up:
                    raise

    def _committed(self) -> dict[int, int]:
        admin = AdminClient(self._settings)
        asked = [ConsumerGroupTopicPartitions(self._job["group"])]
        answer = admin.list_consumer_group_offsets(asked, request_timeout=5)[self._job["group"]]
        return {place.partition: place.offset for place in answer.result(5).topic_partitions or []}

    def ends(self) -> dict[int, int]:
        """How far the topic's partitions go."""
        reader = Consumer({**self._settings, "group.id": "not-used"})
        topic = self._job["topic"]
        places = [TopicPartition(topic, p) for p in range(self._partitions)]
        found = {p.partition: reader.get_watermark_offsets(p, timeout=10)[1] for p in places}
        reader.close()
        return found

    def skipped(self) -> set[tuple[int, int]]:
        """What is committed and was processed by nobody. It must be nothing, always."""
        committed = self.committed()  # before what was processed is looked at
        below = {(p, offset) for p, end in committed.items() for offset in range(end)}
        return below - self.processed

    def until_all_is_committed(self, seconds: float = 30) -> None:
        """Wait until the group has come to the end of every partition."""
        wanted = {p: end for p, end in self.ends().items() if end}
        self.until(lambda: self.committed() == wanted, seconds)

    def until(self, condition: Callable[[], object], seconds: float = 30) -> None:
        """Wait; what the members said last is in the error."""
        give_up = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > give_up:
                raise AssertionError(
                    "\n".join(
                        f"{w.kind}, exit {w.process.poll()}: {len(w.processed)} processed, "
                        f"{w.refused[-1:]} {w.path.with_suffix('.log').read_text()[-600:]}"
                        for w in self.workers
                    )
                    + f"\ncommitted {self.committed()} of {self.ends()}"
                )
            time.sleep(0.05)


def _words(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]
