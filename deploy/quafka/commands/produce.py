"""`quafka produce`: writes records from lines of stdin or files, from whole files, or from JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from quafka.commands.kafka_client import Troubles, config
from quafka.commands.options import UsageError, bootstrap
from quafka.commands.output import plain
from quafka.commands.records import ConsoleRecord, Header, from_line
from quafka.commands.run import EXIT_DONE, cluster_of, guarded, security
from quafka_client.errors import ClientError
from quafka_loop import threads

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_POLL_SECONDS = 0.1
_TRIES = 3  # a record may take this many times --timeout, retries included
_MAX_RECORD = 100 << 20


def run(options: argparse.Namespace) -> int:
    """Write the records; return the exit code."""
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    records = _records(options)
    asyncio.run(_check(options))
    from confluent_kafka import Producer

    producer = Producer(
        {
            **config(bootstrap(options), security(options), Troubles()),
            "enable.idempotence": True,
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


# --- records ----------------------------------------------------------------------------------


def _records(options: argparse.Namespace) -> Iterator[ConsoleRecord]:
    """The records, read one by one. Raises UsageError now, ClientError while iterating."""
    if options.lines and not options.files:
        raise UsageError("--lines needs files; stdin is always read by lines")
    if options.key is not None and options.key_separator is not None:
        raise UsageError("--key and --key-separator cannot be combined; a record has one key")
    if options.key_separator == "":
        raise UsageError("--key-separator is empty")
    if not options.files:
        return _lines(sys.stdin.buffer, "stdin", options)
    return _of_files(options)


def _of_files(options: argparse.Namespace) -> Iterator[ConsoleRecord]:
    for name in options.files:
        path = Path(name)
        try:
            if options.lines or options.input == "json":
                with path.open("rb") as file:
                    yield from _lines(file, name, options)
            else:
                yield _record(path.read_bytes(), options)
        except OSError as e:
            raise ClientError(f"cannot read {name}: {e.strerror}") from e


def _lines(file: BinaryIO, name: str, options: argparse.Namespace) -> Iterator[ConsoleRecord]:
    for number, line in enumerate(file, 1):
        if options.input == "lines":
            yield _record(line.removesuffix(b"\n"), options)
            continue
        try:
            yield from_line(line, options.topic)
        except ValueError as e:
            raise ClientError(f"{name}, line {number}: {e}") from e


def _record(data: bytes, options: argparse.Namespace) -> ConsoleRecord:
    key: bytes | None = options.key.encode() if options.key is not None else None
    if options.key_separator is not None:
        before, separator, after = data.partition(options.key_separator.encode())
        if separator:
            key, data = before, after
    return ConsoleRecord(options.topic, key=key, value=data)


# --- writing ----------------------------------------------------------------------------------


class _Writing:
    """Passes records to librdkafka and collects the delivery reports in a thread."""

    def __init__(self, producer: Producer, options: argparse.Namespace) -> None:
        self._producer = producer
        self._partition: int = options.partition
        self._headers: list[Header] = [(name, value.encode()) for name, value in options.header]
        self._as_json = options.format == "json"
        self._over = threads.Event()
        self._seconds: float = _TRIES * options.timeout
        self._failure: KafkaError | None = None
        self._failed = 0
        self._unread: BrokenPipeError | None = None
        self.written = 0

    def run(self, records: Iterator[ConsoleRecord]) -> None:
        """Write all records. Raises ClientError if some were not written."""
        polling = threads.Thread(target=self._poll, daemon=True)
        polling.start()
        try:
            for record in records:
                self._send(record)
                if self._failure is not None or self._unread is not None:
                    break
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

    def _poll(self) -> None:
        while not self._over.is_set():
            self._producer.poll(_POLL_SECONDS)

    def _send(self, record: ConsoleRecord) -> None:
        from confluent_kafka import KafkaException

        arguments: dict[str, Any] = {}
        if record.timestamp >= 0:
            arguments["timestamp"] = record.timestamp
        if self._partition >= 0:
            arguments["partition"] = self._partition
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
