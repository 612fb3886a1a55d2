"""A producer that writes to several topics all the time, and how long each record has taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

_READ_SECONDS = 60.0


class Written(NamedTuple):
    """A record that was acknowledged `seconds` after `sent` (monotonic)."""

    topic: str
    value: str
    sent: float
    seconds: float


class SteadyLoad:
    """An idempotent producer of numbered records, one after the other to each topic.

    Attributes:
        written: the records that were acknowledged.
        errors: what was not.
    """

    def __init__(
        self, bootstrap: str, topics: Sequence[str], prefix: str, pause: float = 0.01
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._topics, self._prefix, self._pause = topics, prefix, pause
        self.written: list[Written] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause):
            topic = self._topics[number % len(self._topics)]
            value = f"{self._prefix}-{number}"
            self._producer.produce(topic, value, callback=self._delivered(topic, value))
            self._producer.poll(0)
            number += 1
        self._producer.flush(120)

    def _delivered(self, topic: str, value: str) -> Callable[[KafkaError | None, Message], None]:
        sent = time.monotonic()

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.written.append(Written(topic, value, sent, time.monotonic() - sent))
            else:
                self.errors.append(f"{value}: {error}")

        return delivered

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write no more, and wait for the last answers."""
        self._stop.set()
        self._thread.join()

    def is_served(self, seconds: float = 0.5) -> bool:
        """Whether every topic has taken a record of the last `seconds`."""
        since = time.monotonic() - seconds
        recent = takewhile(lambda each: each.sent + each.seconds > since, reversed(self.written))
        return {each.topic for each in recent if each.sent > since} == set(self._topics)

    @property
    def slowest(self) -> float:
        """Seconds of the slowest record."""
        return max(each.seconds for each in self.written)

    def differences(self, bootstrap: str, partitions: int) -> list[str]:
        """Records that are not in their topic exactly once."""
        found: list[str] = list(self.errors)
        for topic in self._topics:
            values = [value.decode() for value in all_of(bootstrap, topic, partitions)]
            ours = [value for value in values if value.startswith(f"{self._prefix}-")]
            wanted = {each.value for each in self.written if each.topic == topic}
            found += [f"{topic}: {value} is lost" for value in wanted - set(ours)]
            if len(ours) != len(set(ours)):
                found.append(f"{topic}: {len(ours) - len(set(ours))} records are there twice")
        return found


def all_of(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """The values of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[bytes] = []
    ends: set[int | None] = set()
    until = time.monotonic() + _READ_SECONDS
    while len(ends) < partitions:
        assert time.monotonic() < until, topic
        message = consumer.poll(0.5)
        error = None if message is None else message.error()
        if message is not None and error is None:
            values.append(message.value() or b"")
        elif (
            message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF
        ):
            ends.add(message.partition())
    consumer.close()
    return values
