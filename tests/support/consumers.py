"""Kafka consumers of one topic under one face: who is assigned what, and what arrives.

All are without a group and begin at offset 0. Their settings have Kafka's names; without any
they fetch little at a time, so that a topic takes many fetches.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import OffsetOutOfRangeError as AioOutOfRangeError
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError

from tests.support.java import JAVA_CLIENTS, kafka_clients
from tests.support.needs import program

PARTITION_BYTES = 400
FETCH_BYTES = 4_000
Settings = Mapping[str, str | int]
DEFAULTS: Settings = {
    "auto.offset.reset": "none",
    "max.partition.fetch.bytes": PARTITION_BYTES,
    "fetch.max.bytes": FETCH_BYTES,
}
Arrived = list[tuple[int, int, bytes]]
"""Partition, offset, value."""


class OutOfRange(Exception):  # noqa: N818 - a clients' answer, not an error of the tests
    """There is nothing at the offset, and the consumer was told to say so."""


class Truncated(Exception):  # noqa: N818 - likewise
    """What it has read is not in the log any more; Java says from which offset on."""


class Consumer(Protocol):
    """What the tests do with each of them."""

    def assign(self, partitions: Collection[int]) -> None: ...
    def pause(self, partitions: Collection[int]) -> None: ...
    def resume(self, partitions: Collection[int]) -> None: ...
    def seek(self, partition: int, offset: int) -> None: ...
    def offset_at(self, partition: int, timestamp: int) -> int | None: ...
    def poll(self) -> Arrived: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka: no fetch sessions."""

    def __init__(self, bootstrap: str, topic: str, settings: Settings = DEFAULTS) -> None:
        self._topic = topic
        self._assigned: set[int] = set()
        reset = settings["auto.offset.reset"]
        self._consumer = confluent_kafka.Consumer(
            {
                **settings,
                "bootstrap.servers": bootstrap,
                "group.id": "not-used",
                "enable.auto.commit": False,
                "auto.offset.reset": "error" if reset == "none" else reset,
                "message.max.bytes": settings["fetch.max.bytes"],
            }
        )

    def assign(self, partitions: Collection[int]) -> None:
        new = set(partitions) - self._assigned
        gone = self._assigned - set(partitions)
        if new:
            self._consumer.incremental_assign(
                [confluent_kafka.TopicPartition(self._topic, p, 0) for p in new]
            )
        if gone:
            self._consumer.incremental_unassign(self._places(gone))
        self._assigned = set(partitions)

    def pause(self, partitions: Collection[int]) -> None:
        self._consumer.pause(self._places(partitions))

    def resume(self, partitions: Collection[int]) -> None:
        self._consumer.resume(self._places(partitions))

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(confluent_kafka.TopicPartition(self._topic, partition, offset))

    def offset_at(self, partition: int, timestamp: int) -> int | None:
        place = confluent_kafka.TopicPartition(self._topic, partition, timestamp)
        (found,) = self._consumer.offsets_for_times([place], 30)
        assert found.error is None
        return None if found.offset == confluent_kafka.OFFSET_END else found.offset

    def poll(self) -> Arrived:
        found: Arrived = []
        for message in self._consumer.consume(1_000, timeout=0.2):
            error = message.error()
            if error is not None and error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                raise (Truncated if "log truncation" in str(error) else OutOfRange)(error)
            if error is not None and error.retriable():
                continue
            assert error is None, error
            found.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
        return found

    def close(self) -> None:
        self._consumer.close()

    def _places(self, partitions: Collection[int]) -> list[Any]:
        return [confluent_kafka.TopicPartition(self._topic, p) for p in partitions]


class KafkaPython:
    """kafka-python: fetch sessions by names."""

    def __init__(self, bootstrap: str, topic: str, settings: Settings = DEFAULTS) -> None:
        self._topic = topic
        self._assigned: set[int] = set()
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, **_as_arguments(settings))

    def assign(self, partitions: Collection[int]) -> None:
        self._consumer.assign(self._places(partitions))
        for partition in set(partitions) - self._assigned:
            self.seek(partition, 0)
        self._assigned = set(partitions)

    def pause(self, partitions: Collection[int]) -> None:
        self._consumer.pause(*self._places(partitions))

    def resume(self, partitions: Collection[int]) -> None:
        self._consumer.resume(*self._places(partitions))

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def offset_at(self, partition: int, timestamp: int) -> int | None:
        place = TopicPartition(self._topic, partition)
        found = self._consumer.offsets_for_times({place: timestamp})[place]
        return None if found is None else cast(int, found.offset)

    def poll(self) -> Arrived:
        try:
            batches = cast("dict[Any, list[Any]]", self._consumer.poll(timeout_ms=200))
        except OffsetOutOfRangeError as e:
            raise OutOfRange(e) from e
        return [(r.partition, r.offset, r.value) for batch in batches.values() for r in batch]

    def close(self) -> None:
        self._consumer.close()

    def _places(self, partitions: Collection[int]) -> list[Any]:
        return [TopicPartition(self._topic, p) for p in partitions]


class AioKafka:
    """aiokafka: no fetch sessions."""

    def __init__(self, bootstrap: str, topic: str, settings: Settings = DEFAULTS) -> None:
        self._topic = topic
        self._assigned: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._consumer = self._loop.run_until_complete(self._start(bootstrap, settings))

    async def _start(self, bootstrap: str, settings: Settings) -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, **_as_arguments(settings))
        await consumer.start()
        return consumer

    def assign(self, partitions: Collection[int]) -> None:
        # It forgets the positions of all partitions whenever it is assigned any.
        at = {p: self._position(p) for p in self._assigned & set(partitions)}
        self._call(self._consumer.assign, self._places(partitions))
        for partition in partitions:
            self.seek(partition, at.get(partition, 0))
        self._assigned = set(partitions)

    def _position(self, partition: int) -> int:
        place = AioTopicPartition(self._topic, partition)
        return cast(int, self._loop.run_until_complete(self._consumer.position(place)))

    def pause(self, partitions: Collection[int]) -> None:
        self._call(self._consumer.pause, *self._places(partitions))

    def resume(self, partitions: Collection[int]) -> None:
        self._call(self._consumer.resume, *self._places(partitions))

    def seek(self, partition: int, offset: int) -> None:
        self._call(self._consumer.seek, AioTopicPartition(self._topic, partition), offset)

    def offset_at(self, partition: int, timestamp: int) -> int | None:
        place = AioTopicPartition(self._topic, partition)
        asking = self._consumer.offsets_for_times({place: timestamp})
        found = self._loop.run_until_complete(asking)[place]
        return None if found is None else cast(int, found.offset)

    def poll(self) -> Arrived:
        try:
            batches = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=200))
        except AioOutOfRangeError as e:
            raise OutOfRange(e) from e
        return [(r.partition, r.offset, r.value) for batch in batches.values() for r in batch]

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()

    def _call(self, function: Callable[..., Any], *args: Any) -> None:
        """It makes futures, for which its loop must be running."""

        async def call() -> None:
            function(*args)

        self._loop.run_until_complete(call())

    def _places(self, partitions: Collection[int]) -> list[Any]:
        return [AioTopicPartition(self._topic, p) for p in partitions]


class Java:
    """Kafka's own consumer: fetch sessions by topic ids, and it checks each answer against them.

    `protocol`: "classic", or "consumer" for the AsyncKafkaConsumer.
    """

    SOURCE = Path(__file__).parents[1] / "compat" / "java" / "Consume.java"

    def __init__(
        self, bootstrap: str, topic: str, settings: Settings = DEFAULTS, protocol: str = "classic"
    ) -> None:
        jars = kafka_clients()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [program("java"), "-Xmx256m", "-cp", ":".join(map(str, jars)), str(self.SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        settings = {**settings, "group.protocol": protocol, "enable.auto.commit": "false"}
        lines = [bootstrap, topic, *(f"{key}={value}" for key, value in settings.items()), ""]
        self._write("\n".join(lines))

    def assign(self, partitions: Collection[int]) -> None:
        self._tell("assign", ",".join(map(str, partitions)))

    def commit(self, partition: int, times: int) -> list[int]:
        """Commit offsets 1, 2, … without waiting; what it is told is committed after each."""
        return [int(line) for line in self._tell("commit", str(partition), str(times))]

    def pause(self, partitions: Collection[int]) -> None:
        self._tell("pause", ",".join(map(str, partitions)))

    def resume(self, partitions: Collection[int]) -> None:
        self._tell("resume", ",".join(map(str, partitions)))

    def seek(self, partition: int, offset: int) -> None:
        self._tell("seek", str(partition), str(offset))

    def offset_at(self, partition: int, timestamp: int) -> int | None:
        found = self._tell("at", str(partition), str(timestamp))
        return int(found[0]) if found else None

    def poll(self) -> Arrived:
        lines = self._tell("poll")
        if lines == ["out of range"]:
            raise OutOfRange
        if lines and lines[0].startswith("truncated "):
            raise Truncated(int(lines[0].split()[1]))
        parts = [line.split(" ", 2) for line in lines]
        return [(int(p), int(offset), value.encode()) for p, offset, value in parts]

    def close(self) -> None:
        """Also checks that it had nothing to say against the fetch sessions.

        What it says while it closes does not count: it takes the answer to its last fetch for
        one to the empty fetch with which it closes its session.
        """
        said = self._said()
        try:
            self._tell("close")
            assert self._process.wait(30) == 0
        finally:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._log.close()
        assert "FetchSessionHandler" not in said, said

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _tell(self, *words: str) -> list[str]:
        self._write(" ".join(words))
        found: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == ".\n":
                return found
            found.append(line.rstrip("\n"))
        raise AssertionError(self._said())


def _as_arguments(settings: Settings) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


class _Make(Protocol):
    def __call__(self, bootstrap: str, topic: str, settings: Settings = ...) -> Consumer: ...


CONSUMERS: dict[str, _Make] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java-classic": Java,
    "java-async": partial(Java, protocol="consumer"),
}
CONSUMER_NAMES = [
    pytest.param(name, marks=JAVA_CLIENTS if name.startswith("java") else ()) for name in CONSUMERS
]
"""For tests of all of them."""
