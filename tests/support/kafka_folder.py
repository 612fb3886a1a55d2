"""Writes log folders as Apache Kafka has them, without Kafka: by names, as before KRaft."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import CONTROL, TRANSACTIONAL, crc32c

NO_PRODUCER = (-1, -1, -1)


def kafka_batch(
    base: int,
    *values: bytes,
    timestamp: int = 1_000,
    epoch: int = 0,
    producer: tuple[int, int, int] = NO_PRODUCER,
    attributes: int = 0,
    span: int = 0,
) -> bytes:
    """A batch at an offset; `span`: its offsets, if compaction has removed the last records."""
    batch = build_batch(
        [Record(number, timestamp, None, value, []) for number, value in enumerate(values)]
    )
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">i", batch, 12, epoch)
    struct.pack_into(">h", batch, 21, attributes)
    if span:
        struct.pack_into(">i", batch, 23, span - 1)
    struct.pack_into(">qhi", batch, 43, *producer)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    batch = build_batch([Record(0, 1_000, key, value, [])])
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">h", batch, 21, CONTROL | TRANSACTIONAL)
    struct.pack_into(">qhi", batch, 43, producer, 0, -1)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


class KafkaFolder:
    """One log folder of a broker with ZooKeeper."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        (path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")

    def append(self, topic: str, partition: int, *batches: bytes, segment: int = 0) -> Path:
        """Append to a segment of a partition, which is made where it is missing."""
        folder = self.path / f"{topic}-{partition}"
        folder.mkdir(exist_ok=True)
        log = folder / f"{segment:020}.log"
        with log.open("ab") as file:
            file.write(b"".join(batches))
        return log

    def name(self, topic: str, topic_id: bytes, partitions: int = 1) -> None:
        """Give a topic an id."""
        text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        for partition in range(partitions):
            path = self.path / f"{topic}-{partition}" / "partition.metadata"
            path.write_text(f"version: 0\ntopic_id: {text}")

    def checkpoint(self, name: str, rows: dict[tuple[str, int], int]) -> None:
        """Write `recovery-point-offset-checkpoint` or `log-start-offset-checkpoint`."""
        lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in rows.items()]
        part = self.path / f"{name}.tmp"
        part.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        part.rename(self.path / name)

    def epochs(self, topic: str, partition: int, *starts: tuple[int, int]) -> None:
        """Write `leader-epoch-checkpoint`: epochs and first offsets."""
        lines = [f"{epoch} {offset}" for epoch, offset in starts]
        path = self.path / f"{topic}-{partition}" / "leader-epoch-checkpoint"
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
