"""What every client must carry unharmed, and how the compat tests ask a client to carry it.

A client is given a job: for each topic, produce the rows in one compression codec (or find them
there already), then read every partition from `START` to the end offset that it asked for itself.
A client that is a program of its own reads the job as JSON from stdin and prints what it read:
see tests/compat/programs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 3
START = 7
"""Where reading begins: inside a batch, whatever the client's batches are."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BIG = 900_000
"""Bytes of the largest value: just below what clients and topics allow by default."""
_EACH = 40
_NOW = time.time_ns() // 1_000_000  # older records than a week are soon deleted, as in Kafka


class Row(NamedTuple):
    """A record and its place."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def rows() -> list[Row]:
    """The records: nulls and empty ones, headers of the same name, one big, times unsorted."""
    chance = random.Random(3)
    found: list[Row] = []
    for offset in range(_EACH):
        for partition in range(PARTITIONS):
            key = (None, b"", b"key-%d" % offset, chance.randbytes(20))[offset % 4]
            value = (b"value-%d " % offset * 20, None, b"", chance.randbytes(100))[offset // 2 % 4]
            headers = [("h", b"%d" % i) for i in range(offset % 3)] + [("é", b"\x00\xff")] * (
                offset % 5 == 0
            )
            at = _NOW - chance.randrange(1_000_000)
            found.append(Row(partition, offset, at, key, value, headers))
    big = chance.randbytes(BIG // 2) + bytes(BIG // 2)
    return [*found, Row(1, _EACH, _NOW, b"big", big, [])]


def expected() -> list[Row]:
    """What a client reads: by partition, from `START` on."""
    return sorted(row for row in rows() if row.offset >= START)


def bare(some: list[Row]) -> list[Row]:
    """The rows as records were before Kafka 0.11: without headers."""
    return [row._replace(headers=[]) for row in some]


class Topic(NamedTuple):
    """One part of a job."""

    name: str
    codec: str
    produce: bool


def run_program(
    command: Sequence[str | Path],
    bootstrap: str,
    topics: Sequence[Topic],
    env: Mapping[str, str] | None = None,
    api_version: tuple[int, ...] | None = None,
) -> dict[str, list[Row]]:
    """Give a client program its job; what it read of each topic."""
    answer = json.loads(run_job(command, bootstrap, topics, env, api_version))
    return {topic: [_from_json(row) for row in found] for topic, found in answer.items()}


def run_job(
    command: Sequence[str | Path],
    bootstrap: str,
    topics: Sequence[Topic],
    env: Mapping[str, str] | None = None,
    api_version: tuple[int, ...] | None = None,
) -> str:
    """Give a client program its job; what it prints."""
    job = {
        "bootstrap": bootstrap,
        "api_version": api_version,
        "start": START,
        "partitions": PARTITIONS,
        "topics": [topic._asdict() for topic in topics],
        "rows": [_to_json(row) for row in (rows() if api_version is None else bare(rows()))],
    }
    done = subprocess.run(
        command,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def produce_all(bootstrap: str, topic: str, codec: str) -> None:
    """The rows by confluent-kafka, in one codec."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for row in rows():
        producer.produce(
            topic,
            row.value,
            row.key,
            row.partition,
            timestamp=row.timestamp,
            headers=list(row.headers),
        )
    assert producer.flush(30) == 0


def read_all(bootstrap: str, topic: str, start: int = START) -> list[Row]:
    """What confluent-kafka reads of a topic, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    places = [TopicPartition(topic, p, start) for p in range(PARTITIONS)]
    count = sum(consumer.get_watermark_offsets(place, 10)[1] - start for place in places)
    consumer.assign(places)
    found: list[Row] = []
    while len(found) < count:
        batch = consumer.consume(count - len(found), timeout=20)
        assert batch, f"{topic}: nothing more after {len(found)} of {count} records"
        for message in batch:
            assert message.error() is None, message.error()
            at = (message.partition() or 0, message.offset() or 0, message.timestamp()[1])
            key, value = message.key(), message.value()
            headers = cast("list[tuple[str, bytes]]", message.headers() or [])
            found.append(Row(*at, _maybe(key), _maybe(value), headers))
    consumer.close()
    return sorted(found)


def _maybe(data: str | bytes | None) -> bytes | None:
    assert not isinstance(data, str)
    return None if data is None else bytes(data)


def _to_json(row: Row) -> dict[str, Any]:
    return {
        **row._asdict(),
        "key": _text(row.key),
        "value": _text(row.value),
        "headers": [[name, _text(content)] for name, content in row.headers],
    }


def _from_json(row: dict[str, Any]) -> Row:
    data = {name: _data(row[name]) for name in ("key", "value")}
    headers = [(name, b64decode(content)) for name, content in row["headers"]]
    return Row(**{**row, **data, "headers": headers})


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _data(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
