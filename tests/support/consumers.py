"""Kafka consumers of one topic under one face: who is assigned what, and what arrives.

All are without a group, begin at offset 0, and have small fetches, so that a topic takes many.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol, cast

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaConsumer, TopicPartition

from tests.support.java import jar

PARTITION_BYTES = 400
FETCH_BYTES = 4_000
Arrived = list[tuple[int, int, bytes]]
"""Partition, offset, value."""


class Consumer(Protocol):
    """What the tests do with each of them."""

    def assign(self, partitions: Collection[int]) -> None: ...
    def pause(self, partitions: Collection[int]) -> None: ...
    def resume(self, partitions: Collection[int]) -> None: ...
    def seek(self, partition: int, offset: int) -> None: ...
    def poll(self) -> Arrived: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka: no fetch sessions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._assigned: set[int] = set()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not-used",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "max.partition.fetch.bytes": PARTITION_BYTES,
                "fetch.max.bytes": FETCH_BYTES,
                "message.max.bytes": FETCH_BYTES,
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

    def poll(self) -> Arrived:
        found: Arrived = []
        for message in self._consumer.consume(1_000, timeout=0.2):
            assert message.error() is None, message.error()
            found.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
        return found

    def close(self) -> None:
        self._consumer.close()

    def _places(self, partitions: Collection[int]) -> list[Any]:
        return [confluent_kafka.TopicPartition(self._topic, p) for p in partitions]


class KafkaPython:
    """kafka-python: fetch sessions by names."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._assigned: set[int] = set()
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="none",
            max_partition_fetch_bytes=PARTITION_BYTES,
            fetch_max_bytes=FETCH_BYTES,
        )

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

    def poll(self) -> Arrived:
        batches = cast("dict[Any, list[Any]]", self._consumer.poll(timeout_ms=200))
        return [(r.partition, r.offset, r.value) for batch in batches.values() for r in batch]

    def close(self) -> None:
        self._consumer.close()

    def _places(self, partitions: Collection[int]) -> list[Any]:
        return [TopicPartition(self._topic, p) for p in partitions]


class AioKafka:
    """aiokafka: no fetch sessions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._assigned: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._consumer = self._loop.run_until_complete(self._start(bootstrap))

    async def _start(self, bootstrap: str) -> Any:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="none",
            max_partition_fetch_bytes=PARTITION_BYTES,
            fetch_max_bytes=FETCH_BYTES,
        )
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

    def poll(self) -> Arrived:
        batches = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=200))
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

    def __init__(self, bootstrap: str, topic: str, protocol: str) -> None:
        jars = [
            jar("org.apache.kafka", "kafka-clients", "4.3.0"),
            jar("org.slf4j", "slf4j-api", "1.7.36"),
            jar("org.slf4j", "slf4j-simple", "1.7.36"),
        ]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", ":".join(map(str, jars)), str(self.SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        settings = {
            "group.protocol": protocol,
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "max.partition.fetch.bytes": PARTITION_BYTES,
            "fetch.max.bytes": FETCH_BYTES,
        }
        lines = [bootstrap, topic, *(f"{key}={value}" for key, value in settings.items()), ""]
        self._write("\n".join(lines))

    def assign(self, partitions: Collection[int]) -> None:
        self._tell("assign", ",".join(map(str, partitions)))

    def pause(self, partitions: Collection[int]) -> None:
        self._tell("pause", ",".join(map(str, partitions)))

    def resume(self, partitions: Collection[int]) -> None:
        self._tell("resume", ",".join(map(str, partitions)))

    def seek(self, partition: int, offset: int) -> None:
        self._tell("seek", str(partition), str(offset))

    def poll(self) -> Arrived:
        lines = [line.split(" ", 2) for line in self._tell("poll")]
        return [(int(p), int(offset), value.encode()) for p, offset, value in lines]

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


CONSUMERS: dict[str, Callable[[str, str], Consumer]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java-classic": lambda bootstrap, topic: Java(bootstrap, topic, "classic"),
    "java-async": lambda bootstrap, topic: Java(bootstrap, topic, "consumer"),
}
