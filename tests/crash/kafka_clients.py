"""Real clients that number their values and report to a checker; one thread each."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PlainTopicPartition

from tests.crash.kafka_checker import Checker, Seen

GIVE_UP_SECONDS = 120.0


class Client:
    """A client's thread. `run` goes on until `stopping` is set."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, checker: Checker):
        self.name = name
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.checker = checker
        self.stopping = threading.Event()
        self.ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Wait until it has stopped, with nothing in flight."""
        self._thread.join(GIVE_UP_SECONDS + 30)

    def raise_error(self) -> None:
        """The error of the thread."""
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as e:
            self._error = e
            self.ready.set()  # no caller need wait for it


class Sender(Client):
    """A producer: a number of records per second, in bursts, over all partitions."""

    def __init__(self, *args: Any, per_second: int, acked: Callable[[], None], seed: int) -> None:
        super().__init__(*args)
        self._pause = 10 / per_second
        self._acked = acked
        self._rng = random.Random(seed)
        self._number = 0

    def next_burst(self) -> list[tuple[int, bytes]]:
        """Partitions and values, known to the checker."""
        found: list[tuple[int, bytes]] = []
        for _ in range(self._rng.randrange(1, 20)):
            value = b"%s-%d-" % (self.name.encode(), self._number)
            value += b"." * self._rng.choice((0, 0, 20, 200))
            self._number += 1
            self.checker.send(value)
            found.append((self._rng.randrange(self.partitions), value))
        return found

    def delivered(self, partition: int, offset: int, value: bytes) -> None:
        self.ready.set()
        self._acked()
        self.checker.ack(self.name, partition, offset, value)


class Confluent(Sender):
    """librdkafka."""

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "linger.ms": self._rng.choice((0, 2, 20)),
                "compression.type": self._rng.choice(("none", "lz4", "zstd")),
                "message.timeout.ms": int(GIVE_UP_SECONDS * 1e3),
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
            }
        )
        while not self.stopping.is_set():
            for to, value in self.next_burst():
                done = partial(self._done, to, value)
                producer.produce(self.topic, value, partition=to, on_delivery=done)
            producer.poll(self._pause)
        assert producer.flush(GIVE_UP_SECONDS) == 0

    def _done(self, to: int, value: bytes, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            self.checker.give_up(self.name, error)
        elif offset is None:
            self.checker.ack_somewhere(to, value)
        else:
            self.delivered(to, offset, value)


class KafkaPython(Sender):
    """kafka-python."""

    def run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            delivery_timeout_ms=int(GIVE_UP_SECONDS * 1e3),
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=50,
            linger_ms=2,
        )
        try:
            while not self.stopping.wait(self._pause):
                for to, value in self.next_burst():
                    future = producer.send(self.topic, value, partition=to)
                    future.add_callback(partial(self._done, value))
                    future.add_errback(partial(self.checker.give_up, self.name))
            producer.flush(GIVE_UP_SECONDS)
        finally:
            producer.close(5)

    def _done(self, value: bytes, metadata: Any) -> None:
        self.delivered(metadata.partition, metadata.offset, value)


class AioKafka(Sender):
    """aiokafka, with a loop of its own."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, retry_backoff_ms=50
        )
        await producer.start()
        waiting: set[asyncio.Future[Any]] = set()
        try:
            while not self.stopping.is_set():
                for to, value in self.next_burst():
                    future = await producer.send(self.topic, value, partition=to)
                    waiting.add(future)
                    future.add_done_callback(waiting.discard)
                    future.add_done_callback(partial(self._done, value))
                await asyncio.sleep(self._pause)
            if waiting:
                await asyncio.wait(waiting, timeout=GIVE_UP_SECONDS)
        finally:
            await producer.stop()

    def _done(self, value: bytes, future: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self.checker.give_up(self.name, repr(error))
        else:
            metadata = future.result()
            self.delivered(metadata.partition, metadata.offset, value)


class ConfluentReader(Client):
    """librdkafka reading every partition from the start, and the tail as it grows."""

    settings: Mapping[str, str] = MappingProxyType({})

    def report(self, found: list[Seen]) -> None:
        self.checker.poll(self.name, found)

    def run(self) -> None:
        consumer = self.consumer()
        try:
            while not self.stopping.is_set():
                self.poll(consumer)
        finally:
            consumer.close()

    def read_all(self) -> dict[int, int]:
        """Read everything once; the end of each partition."""
        consumer = self.consumer()
        try:
            ends = {
                number: consumer.get_watermark_offsets(TopicPartition(self.topic, number), 30)[1]
                for number in range(self.partitions)
            }
            left = sum(ends.values())
            deadline = time.monotonic() + GIVE_UP_SECONDS
            while left > 0 and time.monotonic() < deadline:
                left -= self.poll(consumer)
            return ends
        finally:
            consumer.close()

    def consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "not-used",
                "enable.auto.commit": False,
                "log_level": 0,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 200,
                **self.settings,
            }
        )
        consumer.assign([TopicPartition(self.topic, n, 0) for n in range(self.partitions)])
        return consumer

    def poll(self, consumer: Consumer) -> int:
        found: list[Seen] = []
        for message in consumer.consume(5_000, timeout=0.2):
            error = message.error()
            if error is None:
                place = (message.partition(), message.offset(), message.value())
                assert place[0] is not None
                assert place[1] is not None
                found.append(Seen(place[0], place[1], place[2] or b""))
            else:
                assert error.retriable() or error.code() in _NO_BROKER, error
        self.report(found)
        if found:
            self.ready.set()
        return len(found)


_NO_BROKER = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
)


class KafkaPythonReader(Client):
    """kafka-python doing the same."""

    def run(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            reconnect_backoff_max_ms=200,
        )
        parts = [PlainTopicPartition(self.topic, number) for number in range(self.partitions)]
        consumer.assign(parts)
        for part in parts:
            consumer.seek(part, 0)
        try:
            while not self.stopping.is_set():
                polled = consumer.poll(timeout_ms=200, max_records=2_000)
                found = [
                    Seen(part.partition, record.offset, record.value or b"")
                    for part, records in polled.items()
                    for record in records
                ]
                self.checker.poll(self.name, found)
                if found:
                    self.ready.set()
        finally:
            consumer.close()
