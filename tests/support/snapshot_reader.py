"""A plain reader of snapshots, written from docs/snapshots.md. Slow, and sure of every byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    INDEX_ROW_SIZE,
    ROW_DAMAGED,
    check_entry,
    decode_row,
)
from quafka_proto.record_codec import iter_records
from quafka_proto.snapshot_format import (
    SnapshotManifest,
    SnapshotPartition,
    SnapshotTopic,
    decode_manifest,
    manifest_path,
    snapshot_ids,
)
from quafka_proto.zone_format import decode_zones

Read = Callable[[str], bytes]
"""The whole file at a path below DEST."""


class Stored(NamedTuple):
    """A record that was read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def manifests(dest: Path) -> list[SnapshotManifest]:
    """All snapshots in a folder, oldest first."""
    folder = dest / "snapshots"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    found = [dest / manifest_path(name) for name in snapshot_ids(names)]
    return [decode_manifest(path.read_bytes()) for path in found if path.exists()]


def in_folder(dest: Path) -> Read:
    """Reads the files of a DEST that is a folder."""
    return lambda path: (dest / path).read_bytes()


def read_topic(
    read: Read, manifest: SnapshotManifest, topic: SnapshotTopic
) -> dict[int, list[Stored]]:
    """All records of a topic at the cut, by partition, in the order of their offsets."""
    return {
        partition.partition: _records(read, manifest, topic, partition)
        for partition in topic.partitions
    }


def values(
    read: Read, manifest: SnapshotManifest, org: int, name: str, partition: int = 0
) -> list[bytes]:
    """The values of one partition."""
    topic = manifest.topic(org, name)
    assert topic is not None, f"{name} is not in snapshot {manifest.id}"
    return [record.value or b"" for record in read_topic(read, manifest, topic)[partition]]


def _records(
    read: Read, manifest: SnapshotManifest, topic: SnapshotTopic, partition: SnapshotPartition
) -> list[Stored]:
    batches: list[tuple[int, memoryview]] = []
    wanted = (bytes.fromhex(topic.topic_hash), topic.org, partition.partition, topic.generation)
    for piece in manifest.pieces:
        for zone in decode_zones(read(piece.zones)):
            if zone[:4] != wanted or zone.end_offset <= partition.log_start:
                continue
            rows, data = read(piece.index), memoryview(read(piece.log))
            data = data[: piece.log_offset + piece.length]
            for number in range(zone.first_row, zone.end_row):
                row = decode_row(rows, piece.index_offset + INDEX_ROW_SIZE * number)
                if (row.topic_hash, row.org_id, row.partition, row.generation) != wanted:
                    continue
                assert not row.flags & ROW_DAMAGED
                at = piece.offset_of(row.position)
                entry = check_entry(data, at, piece.salt)
                assert entry.base_offset == row.base_offset
                assert row.global_id < manifest.end_id
                start = at + ENTRY_HEADER_SIZE
                batches.append((row.base_offset, data[start : start + entry.length]))
    found: list[Stored] = []
    for base_offset, batch in sorted(batches, key=lambda item: item[0]):
        for record in iter_records(batch):
            assert record.offset >= base_offset
            if partition.log_start <= record.offset < partition.high_watermark:
                found.append(Stored(record.offset, record.timestamp, record.key, record.value))
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets)), "an offset is there twice"
    if partition.copied >= 0:  # its offsets have gaps
        assert len(offsets) == partition.copied
        return found
    lost = {offset for first, end in partition.lost for offset in range(first, end)}
    expected = set(range(partition.log_start, partition.high_watermark)) - lost
    assert set(offsets) == expected, f"{topic.name}-{partition.partition} has gaps"
    return found
