"""`quafka produce`: writes records from lines of stdin or files, whole files, JSON, CSV or Avro."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from quafka.commands.kafka_client import Troubles, config
from quafka.commands.options import UsageError, bootstrap
from quafka.commands.output import plain
from quafka.commands.record_inputs import check_flags, encoders, records_of
from quafka.commands.records import ConsoleRecord, Header
from quafka.commands.run import EXIT_DONE, cluster_of, guarded, security
from quafka_client.errors import ClientError
from quafka_loop import clock, threads

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_POLL_SECONDS = 0.1
_TRIES = 3  # a record may take this many times --timeout, retries included
_MAX_RECORD = 100 << 20


def run(options: argparse.Namespace) -> int:
    """Write the records; return the exit code."""
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    check_flags(options)
    with ExitStack() as stack:
        return _write(options, records_of(options, *encoders(options, stack)))


def _write(options: argparse.Namespace, records: Iterator[ConsoleRecord]) -> int:
    asyncio.run(_check(options))
    from confluent_kafka import Producer

    producer = Producer(
        {
            **config(bootstrap(options), security(options), Troubles()),
            "enable.idempotence": options.acks == "all",
            "acks": options.acks,
            "compression.type": options.compression,
            "linger.ms": 5,
            "message.max.bytes": _MAX_RECORD,
            "message.timeout.ms": round(_TRIES * options.timeout * 1000),
            "queue.buffering.max.kbytes": 64 << 10,
        }
    )
    writing = _Writing(producer, options)
    writing.run(records)
    if options.format == "text":
        noun = "record" if writing.written == 1 else "records"
        print(f"wrote {writing.written} {noun} to {plain(options.topic)}")
    return EXIT_DONE


async def _check(options: argparse.Namespace) -> None:
    """Check that the topic exists, or is created now, and that its leaders can be reached.

    Raises:
        ClientError, UsageError: if not.
    """
    async with cluster_of(options) as cluster:
        topic = await cluster.topic(options.topic, auto_create=True)
        if options.partition >= len(topic.partitions):
            raise UsageError(f"topic {options.topic!r} has no partition {options.partition}")
        await cluster.each_leader(topic)


# --- writing ----------------------------------------------------------------------------------


class _Writing:
    """Passes records to librdkafka and collects the delivery reports in a thread."""

    def __init__(self, producer: Producer, options: argparse.Namespace) -> None:
        self._producer = producer
        self._partition: int = options.partition
        self._headers: list[Header] = [(name, value.encode()) for name, value in options.header]
        self._rate: int | None = options.rate
        self._as_json = options.format == "json"
        self._over = threads.Event()
        self._seconds: float = _TRIES * options.timeout
        self._failure: KafkaError | None = None
        self._failed = 0
        self._unread: BrokenPipeError | None = None
        self.written = 0

    def run(self, records: Iterator[ConsoleRecord]) -> None:
        """Write all records. Raises ClientError if some were not written.

        Those before one that cannot be read are written.
        """
        polling = threads.Thread(target=self._poll, daemon=True)
        polling.start()
        wrong: ClientError | None = None
        try:
            began = clock.monotonic()
            for number, record in enumerate(records):
                if self._rate is not None:
                    self._over.wait(max(0, began + number / self._rate - clock.monotonic()))
                self._send(record)
                if self._failure is not None or self._unread is not None:
                    break
        except ClientError as e:
            wrong = e
        finally:
            self._over.set()
            polling.join()
        left = self._producer.flush(self._seconds)
        if self._unread is not None:
            raise self._unread
        if self._failure is not None or left:
            missing = self._failed + left
            why = self._failure.str() if self._failure is not None else "no answer"
            raise ClientError(
                f"{missing} of {missing + self.written} records were not written: {why} "
                "(`quafka doctor` may show why)"
            )
        if wrong is not None:
            before = f" (records before it that were written: {self.written})"
            raise ClientError(f"{wrong}{before if self.written else ''}") from wrong

    def _poll(self) -> None:
        while not self._over.is_set():
            self._producer.poll(_POLL_SECONDS)

    def _send(self, record: ConsoleRecord) -> None:
        from confluent_kafka import KafkaException

        arguments: dict[str, Any] = {}
        if record.timestamp >= 0:
            arguments["timestamp"] = record.timestamp
        partition = self._partition if self._partition >= 0 else record.partition
        if partition >= 0:
            arguments["partition"] = partition
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    headers=[*record.headers, *self._headers],
                    on_delivery=self._delivered,
                    **arguments,
                )
            except BufferError:  # the queue is full; deliveries and timeouts will free room
                self._over.wait(_POLL_SECONDS)
            except KafkaException as e:
                raise ClientError(f"a record cannot be written: {e.args[0].str()}") from e
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error
            self._failed += 1
            return
        self.written += 1
        if self._as_json and self._unread is None:
            shown = {
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
            }
            try:
                print(json.dumps(shown), flush=True)
            except BrokenPipeError as e:
                self._unread = e
