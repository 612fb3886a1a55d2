"""The codec beside others: kio, kafka-python, aiokafka and one written by hand for these messages.

Best of many, all in one process and interleaved; microseconds, or nanoseconds a record. Objects
of kio and kafka-python are built before the clock starts, ours and those of the hand-written
codec while it runs. "-": it does not have the message in that version. The others' batches are
validated by CRC alone, so there is no column for them there.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from kafka.record.default_records import DefaultRecordBatch
from kio.serial import entity_reader, entity_writer

from quafka_proto.codec import decode, encode
from quafka_proto.message import Message
from quafka_proto.record_check import check_records
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import split_batches
from quafka_proto.schema.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    SnapshotId,
)
from quafka_proto.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quafka_proto.schema.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.bench import hand_written
from tests.property.proto.oracles import kafka_python_class, kio_entity

NAMES = ("ours", "by hand", "kio", "kafka-python", "aiokafka")
TOPIC_ID = bytes(range(16))
NOT_DIVERGING, NO_LEADER, NO_SNAPSHOT = EpochEndOffset(), LeaderIdAndEpoch(), SnapshotId()
IMPORTED = "quafka_proto.codec, quafka_proto.headers, quafka_proto.record_codec"
Work = Callable[[], object]


class Row:
    """One line of the table: the same work by several codecs."""

    def __init__(self, name: str, works: dict[str, Work], per: int = 1, unit: str = "µs") -> None:
        self.name = name
        self.works = works
        self.scale = (1e9 if unit == "ns" else 1e6) / per
        self.unit = unit
        self.best = dict.fromkeys(works, float("inf"))
        self._numbers: dict[str, int] = {}

    def round(self) -> None:
        for name, work in self.works.items():
            number = self._numbers.get(name) or self._calibrate(name, work)
            began = time.perf_counter()
            for _ in range(number):
                work()
            took = (time.perf_counter() - began) / number
            self.best[name] = min(self.best[name], took)

    def _calibrate(self, name: str, work: Work) -> int:
        work()
        began = time.perf_counter()
        work()
        number = max(1, int(0.01 / (time.perf_counter() - began)))
        self._numbers[name] = number
        return number

    def line(self) -> str:
        cells = [self._cell(name) for name in NAMES]
        ratio = self.best["ours"] / self.best["by hand"] if "by hand" in self.best else 0
        return f"{self.name:36}{self.unit:>4}{''.join(cells)}{f'{ratio:.2f}' if ratio else '':>10}"

    def _cell(self, name: str) -> str:
        if name not in self.best:
            return f"{'-':>14}"
        value = self.best[name] * self.scale
        return f"{value:14.1f}" if value >= 10 else f"{value:14.2f}"


def decoding(
    message: Message, version: int, by_hand: Callable[[bytes], object] | None
) -> dict[str, Work]:
    kind = type(message)
    data = b"".join(encode(message, version))
    works: dict[str, Work] = {"ours": partial(decode, kind, version, data)}
    if by_hand is not None:
        works["by hand"] = partial(by_hand, data)
    works["kio"] = partial(entity_reader(kio_entity(kind, version)), data, 0)
    works["kafka-python"] = partial(kafka_python_class(kind, version).decode, data, version=version)
    return works


def encoding(build: Callable[[], Message], version: int, by_hand: Work) -> dict[str, Work]:
    message = build()
    kind = type(message)
    data = b"".join(encode(message, version))
    theirs = kafka_python_class(kind, version).decode(data, version=version)
    theirs._header = None
    entity = entity_reader(kio_entity(kind, version))(data, 0)[0]
    write = entity_writer(kio_entity(kind, version))
    joined = by_hand()
    pieces = cast("list[bytes]", joined) if isinstance(joined, list) else [cast(bytes, joined)]
    assert b"".join(pieces) == data
    return {
        "ours": lambda: encode(build(), version),
        "by hand": by_hand,
        "kio": lambda: write(io.BytesIO(), entity),
        "kafka-python": partial(theirs.encode, version=version),
    }


def fetch_request(partitions: int) -> FetchRequest:
    parts = [
        FetchPartition(partition=i, fetch_offset=i * 1_000, partition_max_bytes=1 << 20)
        for i in range(partitions)
    ]
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=parts)
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic])


def fetch_response(blobs: Sequence[bytes]) -> FetchResponse:
    partitions = [
        # By position and with shared defaults, as the gateway's handler does.
        PartitionData(i, 0, 9, 9, 0, NOT_DIVERGING, NO_LEADER, NO_SNAPSHOT, None, -1, [blob])
        for i, blob in enumerate(blobs)
    ]
    topic = FetchableTopicResponse("", TOPIC_ID, partitions)
    return FetchResponse(responses=[topic])


def fetch_response_by_hand(blobs: Sequence[bytes]) -> list[bytes | bytearray]:
    partitions = [hand_written.Data(i, 9, [blob]) for i, blob in enumerate(blobs)]
    return hand_written.encode_fetch_response(TOPIC_ID, partitions)


def metadata_response(partitions: int) -> MetadataResponse:
    topic = MetadataResponseTopic(
        name="topic",
        topic_id=TOPIC_ID,
        partitions=[
            MetadataResponsePartition(
                partition_index=i, leader_id=0, leader_epoch=0, replica_nodes=[0], isr_nodes=[0]
            )
            for i in range(partitions)
        ],
    )
    broker = MetadataResponseBroker(node_id=0, host="localhost", port=9092)
    return MetadataResponse(brokers=[broker], cluster_id="id", controller_id=0, topics=[topic])


def metadata_by_hand(partitions: int) -> bytearray:
    leaders = [hand_written.Leader(i, 0, 0, [0], [0]) for i in range(partitions)]
    return hand_written.encode_metadata("localhost", 9092, "id", "topic", TOPIC_ID, leaders)


def message_rows() -> list[Row]:
    rows = [
        Row(
            f"decode Fetch 16, {count} partitions",
            decoding(fetch_request(count), 16, hand_written.decode_fetch),
        )
        for count in (1, 10, 100, 1_000)
    ]
    for count, size, name in ((1, 1 << 20, "1 x 1 MiB"), (100, 10 << 10, "100 x 10 KiB")):
        blobs = [os.urandom(size)] * count
        works = encoding(partial(fetch_response, blobs), 16, partial(fetch_response_by_hand, blobs))
        rows.append(Row(f"build, encode FetchResponse {name}", works))
    data = PartitionProduceData(index=0, records=os.urandom(1 << 20))
    topic = TopicProduceData(name="topic", partition_data=[data])
    produce = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    rows.append(Row("decode Produce 9, 1 MiB", decoding(produce, 9, hand_written.decode_produce)))
    rows.append(
        Row(
            "build, encode Metadata, 1000 partitions",
            encoding(partial(metadata_response, 1_000), 12, partial(metadata_by_hand, 1_000)),
        )
    )
    return rows


def record_rows() -> list[Row]:
    count = 5_000
    records = [Record(0, 1_000 + i, b"key-%d" % i, bytes(180), []) for i in range(count)]
    batch = bytes(build_batch(records))

    def drain(batches: Callable[[bytes], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in batches(batch):
                pass

        return run

    iterating: dict[str, Work] = {
        "ours": drain(iter_records),
        "by hand": drain(hand_written.iterate),
        "kafka-python": drain(DefaultRecordBatch),
        "aiokafka": drain(lambda data: AioBatch(bytearray(data))),
    }
    validating: dict[str, Work] = {
        "ours": lambda: check_records(batch),
        "by hand": lambda: hand_written.validate(batch),
    }
    large = bytes(build_batch([Record(0, 1, None, os.urandom(1_000_000), [])]))
    checking: dict[str, Work] = {
        "ours": lambda: split_batches(large),
        "kafka-python": lambda: DefaultRecordBatch(large).validate_crc(),
        "aiokafka": lambda: AioBatch(bytearray(large)).validate_crc(),
    }
    return [
        Row("validate a batch, a record", validating, count, "ns"),
        Row("iterate a batch, a record", iterating, count, "ns"),
        Row("header and CRC of a 1 MB batch", checking),
    ]


def import_milliseconds(rounds: int) -> float:
    """What importing the package adds to the start of Python."""

    def best(code: str) -> float:
        found: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            found.append(time.perf_counter() - began)
        return min(found) * 1e3

    return best(f"import {IMPORTED}") - best("pass")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench codec")
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args(arguments).rounds
    rows = message_rows() + record_rows()
    for _ in range(rounds):
        for row in rows:
            row.round()
    print(
        f"{f'best of {rounds}':40}"
        + "".join(f"{name:>14}" for name in NAMES)
        + f"{'by hand =1':>12}"
    )
    for row in rows:
        print(row.line())
    print(f"import of the package: {import_milliseconds(min(rounds, 15)):.0f} ms")
