"""`quafka bench produce | consume | latency`: loads any Kafka, and reports throughput and latency.

Like kafka-producer-perf-test, kafka-consumer-perf-test and kafka-e2e-latency.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quafka.commands.kafka_client import Troubles, config
from quafka.commands.latencies import Latencies, three_digits
from quafka.commands.options import UsageError, bootstrap
from quafka.commands.output import as_json, facts, plain, size
from quafka.commands.run import EXIT_DONE, cluster_of, guarded, interruptible, security
from quafka.progress import RECORDS, ProgressLine
from quafka_client import offsets, topics
from quafka_client.errors import ClientError, RequestRefusedError, check
from quafka_loop import clock
from quafka_proto.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_PAYLOADS = 64
_WAIT_SECONDS = 0.2
_AT_ONCE = 10_000
_ROUND_TRIPS = 1_000
_UNLIMITED = 1 << 62
_ID_BYTES = 8


def run(options: argparse.Namespace) -> int:
    """Measure; return the exit code."""
    return guarded(lambda: _bench(options))


def _bench(options: argparse.Namespace) -> int:
    measure: Callable[[argparse.Namespace], _Measured] = {
        "produce": _produce, "consume": _consume, "latency": _latency,
    }[options.action]  # fmt: skip
    found = measure(options)
    if options.format == "json":
        print(as_json(found.document(options)))
    else:
        print(found.text(options))
    return EXIT_DONE


@dataclass(slots=True)
class _Measured:
    """What was measured after the warm-up. `latencies`: None: the action has none."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latencies: Latencies | None = None

    def document(self, options: argparse.Namespace) -> dict[str, Any]:
        seconds = max(self.seconds, 1e-9)
        found: dict[str, Any] = {
            "action": options.action, "topic": options.topic, "records": self.records,
            "bytes": self.bytes, "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "bytes_per_second": round(self.bytes / seconds, 1),
        }  # fmt: skip
        if self.latencies is not None:
            found["latency_ms"] = self.latencies.as_milliseconds()
        return found

    def text(self, options: argparse.Namespace) -> str:
        seconds = max(self.seconds, 1e-9)
        rates = f"{self.records / seconds:,.0f} records/s, {size(round(self.bytes / seconds))}/s"
        pairs: list[tuple[str, object]] = [
            (options.action, f"{self.records:,} records of {plain(options.topic)}"),
            ("time", f"{self.seconds:.2f} s"),
            ("throughput", rates),
        ]
        shown = self.latencies.as_milliseconds() if self.latencies is not None else None
        if shown is not None:
            words = ", ".join(f"{name} {three_digits(ms)} ms" for name, ms in shown.items())
            pairs.append(("latency", words))
        return facts(pairs)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return config(bootstrap(options), security(options), Troubles())


def _producer(options: argparse.Namespace, **settings: Any) -> Producer:
    from confluent_kafka import Producer

    more = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({**_settings(options), "message.max.bytes": 100 << 20, **more})


async def _partitions(options: argparse.Namespace, *, create: bool) -> dict[int, tuple[int, int]]:
    """The topic's partitions with start and end. Raises ClientError."""
    async with cluster_of(options) as cluster:
        try:
            topic = await cluster.topic(options.topic)
        except RequestRefusedError as e:
            if not create or e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            made = await topics.create(
                cluster, options.topic, options.partitions, -1, {}, validate_only=False
            )
            check(made.error_code, f"topic {options.topic!r}", made.error_message)
            topic = await topics.led(cluster, options.topic, options.partitions)
        starts = await offsets.list_offsets(cluster, topic, offsets.START)
        ends = await offsets.list_offsets(cluster, topic, offsets.END)
    return {number: (starts[number], end) for number, end in sorted(ends.items())}


def _payloads(length: int) -> list[bytes]:
    """Different values of capital letters, as Kafka's own tool writes them."""
    letters = random.Random(1)  # noqa: S311 # the same load in each run
    return [
        "".join(letters.choices(string.ascii_uppercase, k=length)).encode()
        for _ in range(_PAYLOADS)
    ]


# --- produce ------------------------------------------------------------------------------------


class _Load:
    """Writes records at a rate, and counts those that were sent after the warm-up."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._producer = _producer(
            options, acks=options.acks, compression_type=options.compression,
            linger_ms=options.linger_ms, batch_size=options.batch_size,
            enable_idempotence=options.acks == "all", queue_buffering_max_kbytes=64 << 10,
        )  # fmt: skip
        self._failure: KafkaError | None = None
        self.measured = _Measured(latencies=Latencies())
        self._begin = self._last = 0.0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error
            return
        now, latency = clock.perf_counter(), message.latency() or 0.0
        if now - latency < self._begin:
            return  # of the warm-up
        self.measured.records += 1
        self.measured.bytes += self._options.record_size
        assert self.measured.latencies is not None
        self.measured.latencies.add(latency)
        self._last = now

    def run(self) -> _Measured:
        """Write all records. Raises ClientError."""
        options = self._options
        values = _payloads(options.record_size)
        start = clock.perf_counter()
        self._begin = start + (options.warm_up or 0.0)
        end = self._begin + options.duration if options.duration else float("inf")
        most = _UNLIMITED if options.num is None else options.num
        progress = ProgressLine("producing", RECORDS)
        sent = 0
        try:
            with interruptible() as interrupted:
                while sent < most:
                    now = clock.perf_counter()
                    if now >= end:
                        break
                    if options.rate and sent > (now - start) * options.rate:
                        self._producer.poll(min(0.01, sent / options.rate - (now - start)))
                        continue
                    self._one(values[sent % _PAYLOADS])
                    sent += 1
                    if not sent % 500:
                        self._producer.poll(0)
                        interrupted()
                        self._check()
                        if options.num is not None:
                            progress.show(sent, most)
        finally:
            progress.end()
        left = self._producer.flush(max(30.0, options.timeout))
        self._check()
        if left:
            raise ClientError(f"{left} of {sent} records were not acknowledged")
        self.measured.seconds = max(0.0, self._last - self._begin)
        return self.measured

    def _one(self, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._options.topic, value, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(_WAIT_SECONDS)
                self._check()
            else:
                return

    def _check(self) -> None:
        if self._failure is not None:
            raise ClientError(f"a record was not written: {self._failure.str()}")


def _produce(options: argparse.Namespace) -> _Measured:
    if options.num is None and options.duration is None:
        options.duration = 10.0
    asyncio.run(_partitions(options, create=True))
    return _Load(options).run()


# --- consume ------------------------------------------------------------------------------------


def _consume(options: argparse.Namespace) -> _Measured:
    """Read all partitions from their starts to where they end now."""
    from confluent_kafka import Consumer, TopicPartition

    places = asyncio.run(_partitions(options, create=False))
    total = sum(end - start for start, end in places.values())
    if not total:
        raise ClientError(f"topic {options.topic!r} has no records; `quafka bench produce` writes")
    consumer = Consumer(
        {
            **_settings(options),
            "group.id": "quafka-cli",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 64 << 10,
        }
    )
    left = {number for number, (start, end) in places.items() if end > start}
    measured, progress = _Measured(), ProgressLine("consuming", RECORDS)
    most = total if options.num is None else options.num
    begin = clock.perf_counter()
    warm = begin + (options.warm_up or 0.0)
    end_at = warm + options.duration if options.duration else float("inf")
    last, seen = warm, 0
    try:
        with interruptible() as interrupted:
            consumer.assign([TopicPartition(options.topic, n, places[n][0]) for n in sorted(left)])
            while left and measured.records < most and clock.perf_counter() < end_at:
                found = consumer.consume(_AT_ONCE, _WAIT_SECONDS)
                interrupted()
                records = [message for message in found if not _ended(message, left)]
                now = clock.perf_counter()
                seen += len(records)
                if records and now >= warm:
                    measured.records += len(records)
                    measured.bytes += sum(map(_length, records))
                    last = now
                progress.show(min(seen, total), total)
    finally:
        progress.end()
        consumer.close()
    measured.seconds = last - warm
    return measured


def _length(message: Message) -> int:
    key: Any = message.key()
    value: Any = message.value()
    return len(key or b"") + len(value or b"")


def _ended(message: Message, left: set[int]) -> bool:
    """Whether it is an event instead of a record. Raises ClientError."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
        left.discard(message.partition() or 0)
    elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise ClientError(f"cannot read topic {message.topic()!r}: {error.str()}")
    return True


# --- latency ------------------------------------------------------------------------------------


def _latency(options: argparse.Namespace) -> _Measured:
    """Write a record, and read it: one after the other, each as soon as the last one is read."""
    from confluent_kafka import Consumer, TopicPartition

    if options.record_size < _ID_BYTES:
        raise UsageError(f"--record-size is at least {_ID_BYTES}: each record has a number")
    places = asyncio.run(_partitions(options, create=True))
    partition, (_, end) = next(iter(places.items()))
    producer = _producer(options, acks=options.acks, linger_ms=0)
    consumer = Consumer(
        {**_settings(options), "group.id": "quafka-cli", "enable.auto.commit": False,
         "auto.offset.reset": "error", "fetch.wait.max.ms": 500}
    )  # fmt: skip
    measured = _Measured(latencies=Latencies())
    assert measured.latencies is not None
    most = options.num or (_UNLIMITED if options.duration else _ROUND_TRIPS)
    value = _payloads(options.record_size)[0][_ID_BYTES:]
    progress = ProgressLine("round trips", RECORDS)
    try:
        with interruptible() as interrupted:
            consumer.assign([TopicPartition(options.topic, partition, end)])
            begin = warm = clock.perf_counter() + (options.warm_up or 0.0)
            number = 0
            while measured.records < most:
                sent = clock.perf_counter()
                if options.duration and sent >= warm + options.duration:
                    break
                body = number.to_bytes(_ID_BYTES, "big") + value
                producer.produce(options.topic, body, partition=partition)
                producer.poll(0)
                _until_read(consumer, body, options.timeout, interrupted)
                number += 1
                # The first one also waits for connections.
                if sent >= warm and number > 1:
                    measured.records += 1
                    measured.bytes += len(body)
                    measured.latencies.add(clock.perf_counter() - sent)
                else:
                    begin = clock.perf_counter()
                if most != _UNLIMITED:
                    progress.show(measured.records, most)
            measured.seconds = clock.perf_counter() - begin
    finally:
        progress.end()
        consumer.close()
    return measured


def _until_read(
    consumer: Any, body: bytes, timeout: float, interrupted: Callable[[], None]
) -> None:
    give_up = clock.perf_counter() + timeout
    while clock.perf_counter() < give_up:
        message: Message | None = consumer.poll(_WAIT_SECONDS)
        interrupted()
        if message is None or _ended(message, set()):
            continue
        read: Any = message.value()
        if read == body:
            return
    raise ClientError(f"a record was not read within {timeout:g} s")
