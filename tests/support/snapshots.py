"""Snapshots made of record batches, without a broker: for tests of what reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    LOG_MAGIC,
    REWRITTEN,
    encode_entry_header,
    encode_file_header,
    encode_row,
    row_of,
)
from quafka_proto.log_format import EntryHeader as LogEntry
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
)
from quafka_proto.records import PATCHED_SIZE, TRANSACTIONAL, read_header, rebase
from quafka_proto.snapshot_format import (
    OpenTransaction,
    SegmentPiece,
    SnapshotAbortedTransaction,
    SnapshotManifest,
    SnapshotPartition,
    SnapshotTopic,
    encode_manifest,
    manifest_path,
)
from quafka_proto.zone_format import encode_zones, zones_of

SALT = 7_000


class Appended(NamedTuple):
    """A batch of a partition; its base offset is the one that it gets in the log."""

    topic: str
    partition: int
    batch: bytearray
    generation: int = 0


def topic_hash(topic: str) -> bytes:
    """Any 16 bytes do."""
    return topic.encode().ljust(16, b"\x00")[:16]


def records_of(
    values: Iterable[bytes | None], first_timestamp: int = 1_000, key: bytes | None = b"k"
) -> list[Record]:
    return [
        Record(0, first_timestamp + number, key, value, []) for number, value in enumerate(values)
    ]


class SnapshotMaker:
    """One DEST; each `publish` is a snapshot of all that was appended so far."""

    def __init__(self, folder: Path, rows_in_segment: int = 1_000_000) -> None:
        self.folder = folder
        (folder / "segments").mkdir(parents=True)
        self._rows_in_segment = rows_in_segment
        self._pending: list[tuple[Appended, int]] = []
        self._pieces: list[SegmentPiece] = []
        self._next_id = 0
        self._snapshots = 0
        self.cut_ms: int | None = None
        """Of the next snapshots; a million for each so far without it."""
        self.ends: dict[tuple[str, int], int] = defaultdict(int)
        self.starts: dict[tuple[str, int], int] = defaultdict(int)
        self.lost: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
        self.generations: dict[str, int] = defaultdict(int)
        self.open: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        """The first offsets of open transactions by producer id."""
        self.batches: list[bytearray] = []
        self.aborted: dict[tuple[str, int], list[SnapshotAbortedTransaction]] = defaultdict(list)

    def append(
        self,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        *,
        codec: int = 0,
        append_time: int | None = None,
        control: bool = False,
        transactional: bool = False,
        producer_id: int = -1,
    ) -> None:
        """Records as one batch, behind those that the partition has."""
        batch = build_batch(
            records, codec=codec, append_time=append_time, control=control,
            transactional=transactional, producer_id=producer_id,
        )  # fmt: skip
        self.append_batch(topic, partition, batch)

    def append_batch(self, topic: str, partition: int, batch: bytearray) -> None:
        """A batch, behind those that the partition has."""
        rebase(batch, self.ends[topic, partition], 0)
        header = read_header(batch)
        if header.attributes & TRANSACTIONAL:
            self.open[topic, partition].setdefault(header.producer_id, header.base_offset)
        self.ends[topic, partition] += header.last_offset_delta + 1
        self.batches.append(batch)
        self._pending.append((Appended(topic, partition, batch, self.generations[topic]), -1))

    def end_transaction(
        self, topic: str, producer_id: int, partition: int = 0, *, commit: bool
    ) -> None:
        """The control batch that ends a producer's transaction in a partition."""
        offset = self.ends[topic, partition]
        marker = TransactionMarker(MarkerType.COMMIT if commit else MarkerType.ABORT, 0)
        self.append_batch(topic, partition, build_marker(marker, 0, 1_000, producer_id, 0))
        first = self.open[topic, partition].pop(producer_id)
        if not commit and first < offset:  # not only the control batch
            ended = SnapshotAbortedTransaction(producer_id, first, offset)
            self.aborted[topic, partition].append(ended)

    def recreate(self, topic: str) -> None:
        """The topic is deleted and made again: its offsets begin anew."""
        self.generations[topic] += 1
        for name, partition in list(self.ends):
            if name == topic:
                self.ends[name, partition] = self.starts[name, partition] = 0

    def publish(self, *, rewritten: bool = False, org: int | None = None) -> str:
        """Write what is pending, and a manifest; gives the snapshot's id."""
        pending = [appended for appended, _ in self._pending]
        self._pending.clear()
        for at in range(0, len(pending), self._rows_in_segment):
            self._write_segment(pending[at : at + self._rows_in_segment], rewritten)
        self._snapshots += 1
        snapshot_id = f"{self._snapshots:08}-20261121T{self._snapshots:06}Z"
        cut_ms = self.cut_ms or 1_000_000 * self._snapshots
        manifest = SnapshotManifest(
            snapshot_id, cut_ms, "test", self._next_id, org, None,
            list(self._pieces), self._topics(), [],
        )  # fmt: skip
        path = self.folder / manifest_path(snapshot_id)
        path.parent.mkdir(parents=True)
        path.write_bytes(encode_manifest(manifest))
        return snapshot_id

    def _topics(self) -> list[SnapshotTopic]:
        found: dict[str, list[SnapshotPartition]] = defaultdict(list)
        for (topic, number), end in sorted(self.ends.items()):
            open_ = [OpenTransaction(*item) for item in self.open[topic, number].items()]
            start, lost = self.starts[topic, number], self.lost[topic, number]
            stable = max(min((each.first_offset for each in open_), default=end), start)
            aborted = [at for at in self.aborted[topic, number] if at.last_offset >= start]
            found[topic].append(SnapshotPartition(number, start, end, stable, lost, open_, aborted))
        return [
            SnapshotTopic(1, name, "00", topic_hash(name).hex(), self.generations[name], partitions)
            for name, partitions in found.items()
        ]

    def _write_segment(self, pending: list[Appended], rewritten: bool) -> None:
        number = len(self._pieces)
        kind = REWRITTEN if rewritten else 0
        log = bytearray(encode_file_header(LOG_MAGIC, number, SALT, kind))
        index = bytearray(encode_file_header(INDEX_MAGIC, number, SALT, kind))
        first_id = self._next_id
        numbered: list[tuple[int, Appended]] = []
        for appended in pending:
            numbered.append((self._next_id, appended))
            self._next_id += read_header(appended.batch).last_offset_delta + 1
        rows: dict[int, bytes] = {}
        # A rewritten segment has its entries in any order.
        for global_id, appended in reversed(numbered) if rewritten else numbered:
            header = read_header(appended.batch)
            batch = bytearray(appended.batch)
            rebase(batch, header.base_offset, number)  # each segment has another leader epoch
            entry = LogEntry(
                header.length, global_id, header.base_offset, 0, topic_hash(appended.topic), 1,
                appended.partition, appended.generation, header.last_offset_delta + 1,
            )  # fmt: skip
            rows[global_id] = encode_row(row_of(entry, len(log), batch))
            fields = entry._asdict()
            log += encode_entry_header(batch[:PATCHED_SIZE], salt=SALT, **fields)
            log += batch
        body = b"".join(rows[global_id] for global_id in sorted(rows))
        index += body
        name = f"segments/{number:06}-{first_id}"
        for suffix, data in (
            (".log", log),
            (".oidx", index),
            (".zones", encode_zones(zones_of(body))),
        ):
            (self.folder / (name + suffix)).write_bytes(data)
        self._pieces.append(
            SegmentPiece(
                number, SALT, 0, len(log), name + ".log", 0, name + ".oidx", FILE_HEADER_SIZE,
                len(rows), name + ".zones",
            )
        )  # fmt: skip

    def log_of(self, piece: int = 0) -> Path:
        """The file that has a piece."""
        return self.folder / self._pieces[piece].log

    def shorten(self, piece: int, length: int) -> None:
        """From the next snapshot on a piece has so many bytes only."""
        self._pieces[piece] = replace(self._pieces[piece], length=length)
