"""KRaft's records make topics; those of `__consumer_offsets` make groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.kafka_logs.cluster_image import TOPIC_RESOURCE, ClusterImage, ClusterMetadata
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.group_offsets import read_groups
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_proto.errors import Malformed
from quafka_proto.kafka_group_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_record,
)
from quafka_proto.kafka_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
)

A, B = bytes([1] * 16), bytes([2] * 16)
NOW = 1_700_000_000_000


def partition(topic_id: bytes, number: int = 0) -> PartitionRecord:
    return PartitionRecord(number, topic_id, [1, 2], [1], leader=1, leader_epoch=4)


def values(*records: MetadataRecord) -> list[bytes]:
    return [encode_metadata_record(record, record.versions.high) for record in records]


def batch(first: int, contents: list[bytes]) -> bytes:
    return bytes(
        build_batch((Record(first + n, 0, None, v, []) for n, v in enumerate(contents)), first)
    )


@pytest.mark.parametrize("version", range(3))
def test_records_survive_a_round_trip(version: int) -> None:
    directories = [A, B] if version else []
    elr = [7] if version > 1 else None
    record = PartitionRecord(
        3, A, [1, 2], [1], [2], [], 1, 1, 5, 6, directories, elr, [8] if elr else None
    )
    assert decode_metadata_record(encode_metadata_record(record, version)) == record


def test_topics_are_created_changed_and_removed() -> None:
    image = ClusterImage()
    records: list[MetadataRecord] = [
        FeatureLevelRecord("metadata.version", 25),
        TopicRecord("a", A), partition(A), partition(A, 1),
        TopicRecord("b", B), partition(B),
        ConfigRecord(TOPIC_RESOURCE, "a", "retention.ms", "5"),
        ConfigRecord(TOPIC_RESOURCE, "a", "segment.bytes", "9"),
        ConfigRecord(TOPIC_RESOURCE, "b", "retention.ms", "6"),
        ConfigRecord(TOPIC_RESOURCE, "a", "segment.bytes", None),
        PartitionChangeRecord(1, A, replicas=[3], leader=3),
        RemoveTopicRecord(B),
    ]  # fmt: skip
    for record in records:
        image.apply(record)
    (topic,) = image.topics.values()
    assert (topic.name, sorted(topic.partitions)) == ("a", [0, 1])
    changed = topic.partitions[1]
    assert (changed.replicas, changed.leader, changed.leader_epoch) == ([3], 3, 5)
    assert image.topic_configs("a") == {"retention.ms": "5"}
    assert image.topic_configs("b") == {}
    assert image.features == {"metadata.version": 25}
    with pytest.raises(Malformed, match="unknown topic"):
        image.apply(RemoveTopicRecord(B))


def test_transactions_of_metadata() -> None:
    image = ClusterImage()
    for end in (AbortTransactionRecord("no"), EndTransactionRecord()):
        image.apply(BeginTransactionRecord("create"))
        image.apply(TopicRecord("a", A))
        assert not image.topics
        image.apply(end)
    assert list(image.topics) == [A]


def test_a_metadata_log_with_a_snapshot_is_followed(tmp_path: Path) -> None:
    log = tmp_path / f"{4:020}.log"
    first = batch(4, values(TopicRecord("b", B), partition(B)))
    log.write_bytes(first)
    with pytest.raises(KafkaLogError, match="begins at 4, and no snapshot"):
        ClusterMetadata(tmp_path)
    snapshot = tmp_path / f"{4:020}-{1:010}.checkpoint"
    snapshot.write_bytes(batch(0, values(TopicRecord("a", A), partition(A))))
    (tmp_path / f"{2:020}-{1:010}.checkpoint").write_bytes(b"an older one")
    (tmp_path / f"{9:020}-{1:010}.checkpoint.part").write_bytes(b"not finished")
    metadata = ClusterMetadata(tmp_path)
    assert sorted(metadata.image.topics) == [A, B]
    log.write_bytes(first + batch(6, values(RemoveTopicRecord(A))))
    assert metadata.refresh()
    assert sorted(metadata.image.topics) == [B]
    assert not metadata.refresh()
    unknown = b"\x01\x7f\x00whatever"
    future = b"\x01\x02\x09"
    log.write_bytes(log.read_bytes() + batch(7, [unknown]) + batch(8, [future]))
    with pytest.raises(KafkaLogError, match="TopicRecord version 9 is not known"):
        metadata.refresh()


# --- groups -------------------------------------------------------------------------------------


def commit(group: str, topic: str, offset: int | None, version: int = 4) -> Record:
    key = encode_group_record(OffsetCommitKey(group, topic, 0), 1)
    if offset is None:
        return Record(0, NOW, key, None, [])
    value = OffsetCommitValue(offset, -1, "m", NOW)
    return Record(0, NOW, key, encode_group_record(value, version), [])


class Offsets:
    """Writes a partition of `__consumer_offsets`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{0:020}.log"
        self._next = 0

    def add(self, *records: Record, producer: int = -1) -> None:
        data = build_batch(
            records, self._next, transactional=producer >= 0, producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
        )  # fmt: skip
        self._write(data, len(records))

    def end(self, producer: int, kind: MarkerType) -> None:
        self._write(build_marker(TransactionMarker(kind, 0), self._next, NOW, producer, 0), 1)

    def _write(self, data: bytes | bytearray, offsets: int) -> None:
        with self._path.open("ab") as file:
            file.write(data)
        self._next += offsets

    def read(self) -> dict[str, dict[str, int]]:
        groups = read_groups([PartitionLog(self._folder)])
        return {
            name: {topic: at.offset for (topic, _), at in group.offsets.items()}
            for name, group in groups.items()
        }


def test_the_last_commit_counts(tmp_path: Path) -> None:
    offsets = Offsets(tmp_path)
    for version in range(5):
        offsets.add(commit("g", f"v{version}", version, version))
    offsets.add(commit("g", "v0", 100), commit("g", "v1", None), commit("h", "v1", 1))
    offsets.add(commit("h", "v1", None))
    assert offsets.read() == {"g": {"v0": 100, "v2": 2, "v3": 3, "v4": 4}}


def test_offsets_of_transactions_count_when_they_are_committed(tmp_path: Path) -> None:
    offsets = Offsets(tmp_path)
    offsets.add(commit("g", "a", 1), commit("g", "b", 1), commit("g", "c", 1), commit("g", "d", 1))
    offsets.add(commit("g", "a", 2), producer=7)
    offsets.add(commit("g", "b", 2), producer=8)
    offsets.add(commit("g", "c", 2), producer=9)
    offsets.add(commit("g", "d", 2), producer=7)
    offsets.add(commit("g", "d", 3))  # later than that of the transaction
    offsets.end(7, MarkerType.COMMIT)
    offsets.end(8, MarkerType.ABORT)
    assert offsets.read() == {"g": {"a": 2, "b": 1, "c": 1, "d": 3}}


def test_groups_are_named_without_offsets(tmp_path: Path) -> None:
    offsets = Offsets(tmp_path)
    members = [MemberMetadata("m", None, "app", "/127.0.0.1", 300, 45, b"s", b"a")]

    def described(key: GroupRecord, key_version: int, value: bytes | None) -> Record:
        return Record(0, NOW, encode_group_record(key, key_version), value, [])

    for version in range(5):
        group = GroupMetadataValue("consumer", 3, "range", "m", NOW, members)
        value = encode_group_record(group, version)
        offsets.add(described(GroupMetadataKey(f"classic {version}"), 2, value))
    offsets.add(described(ConsumerGroupMetadataKey("new"), 3, b"\0\0\0\0\0\1"))
    offsets.add(described(GroupMetadataKey("classic 0"), 2, None))
    offsets.add(Record(0, NOW, b"\0\x05of another kind", b"?", []))
    assert sorted(offsets.read()) == ["classic 1", "classic 2", "classic 3", "classic 4", "new"]
