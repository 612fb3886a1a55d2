"""The manifest: round trips; incomplete ones and unknown versions are refused."""

import json
from dataclasses import replace

import pytest

from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import (
    FIRST_COPY,
    OpenTransaction,
    SegmentPiece,
    SnapshotAbortedTransaction,
    SnapshotCommittedOffset,
    SnapshotGroup,
    SnapshotManifest,
    SnapshotPartition,
    SnapshotSegment,
    SnapshotTopic,
    decode_manifest,
    encode_manifest,
    manifest_path,
    snapshot_ids,
)

ID = "1795269300-20261121T135500Z"
PIECE = SegmentPiece(
    3, 0xDEADBEEF, 4096, 1000, "segments/3.log", 4096, "segments/3.oidx", 0, 7, "segments/3.zones"
)
MANIFEST = SnapshotManifest(
    ID, 1_700_000_000_000, "cluster", 77, None, None,
    [PIECE],
    [
        SnapshotTopic(
            1, "flüge", "00" * 16, "11" * 16, 2, [SnapshotPartition(0, 3, 9, 9, [[4, 6]])],
            {"a": "b"},
        )
    ],
    [SnapshotGroup(1, "g", [SnapshotCommittedOffset("flüge", 0, 5, -1, "m", 1)])],
    [SnapshotSegment(3, 0xDEADBEEF, 5096, 11, "ab")],
)  # fmt: skip


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST
    assert MANIFEST.topic(1, "flüge") is MANIFEST.topics[0]
    assert MANIFEST.topic(2, "flüge") is None
    assert set(MANIFEST.files()) == {"segments/3.log", "segments/3.oidx", "segments/3.zones"}


def test_transactions_need_a_reader_that_knows_them() -> None:
    """A reader of version 1 would take aborted records for committed ones."""
    plain = SnapshotPartition(0, 3, 9, 9)
    for partition in (
        replace(plain, open=[OpenTransaction(7, 5)], last_stable_offset=5),
        replace(plain, aborted=[SnapshotAbortedTransaction(7, 2, 4)]),
    ):
        topic = replace(MANIFEST.topics[0], partitions=[plain, partition])
        manifest = replace(MANIFEST, topics=[topic])
        assert json.loads(encode_manifest(manifest))["version"] == 2
        assert decode_manifest(encode_manifest(manifest)) == manifest
    values = json.loads(encode_manifest(MANIFEST))
    assert values["version"] == 1
    assert "aborted" not in values["topics"][0]["partitions"][0]


def test_copies_need_a_reader_that_knows_them() -> None:
    """A restore of an earlier version would take them for segments of the log."""
    copied = replace(
        MANIFEST.topics[0], partitions=[SnapshotPartition(0, 5, 9, 9, [[7, 9]], copied=2)]
    )
    copy = replace(MANIFEST.pieces[0], number=FIRST_COPY)
    manifest = replace(MANIFEST, topics=[copied], pieces=[*MANIFEST.pieces, copy])
    assert json.loads(encode_manifest(manifest))["version"] == 3
    assert decode_manifest(encode_manifest(manifest)) == manifest
    ours = manifest.of_the_log()
    assert ours.pieces == MANIFEST.pieces
    assert ours.topics[0].partitions == [SnapshotPartition(0, 0, 0, 0)]
    assert MANIFEST.of_the_log() == MANIFEST


@pytest.mark.parametrize(
    "transactions", [{"open": [[7]]}, {"aborted": [7]}, {"aborted": [[1, 2, "3"]]}, {"open": {}}]
)
def test_garbled_transactions_are_refused(transactions: dict[str, object]) -> None:
    values = json.loads(encode_manifest(MANIFEST))
    values["topics"][0]["partitions"][0].update(transactions)
    with pytest.raises(Malformed, match=next(iter(transactions))):
        decode_manifest(json.dumps(values).encode())


def test_fields_that_are_not_known_are_ignored() -> None:
    values = json.loads(encode_manifest(MANIFEST))
    values["later"] = values["pieces"][0]["later"] = {"x": 1}
    assert decode_manifest(json.dumps(values).encode()) == MANIFEST


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 4}, "version 4; known are 1 to 3"),
        ({"format": "parquet"}, "format"),
        ({"pieces": {}}, "pieces"),
        ({"pieces": [7]}, "not an object"),
        ({"cut_ms": "yesterday"}, "cut_ms"),
        ({"cut_ms": True}, "cut_ms"),
        ({"topics": [{"org": 1}]}, "topics\\[0\\]"),
    ],
)
def test_errors_in_a_manifest_have_their_reason(change: dict[str, object], complaint: str) -> None:
    values = {**json.loads(encode_manifest(MANIFEST)), **change}
    with pytest.raises(Malformed, match=complaint):
        decode_manifest(json.dumps(values).encode())


@pytest.mark.parametrize("path", ["/etc/passwd", "segments/../../x", "snapshots/x", ""])
def test_a_path_that_leaves_the_segments_is_refused(path: str) -> None:
    values = json.loads(encode_manifest(MANIFEST))
    values["pieces"][0]["log"] = path
    with pytest.raises(Malformed, match="log"):
        decode_manifest(json.dumps(values).encode())


@pytest.mark.parametrize("length", [0, 10, -1])
def test_half_a_manifest_is_none(length: int) -> None:
    with pytest.raises(Malformed):
        decode_manifest(encode_manifest(MANIFEST)[:length])


def test_an_entry_is_found_in_a_piece_of_the_segment() -> None:
    assert PIECE.offset_of(4100) == 4100
    copied = SegmentPiece(3, 0, 4096, 1000, "segments/x", 0, "segments/y", 0, 7, "segments/z")
    assert copied.offset_of(4100) == 4


def test_ids_sort_in_the_order_of_the_cuts() -> None:
    later = "1795269301-20261121T135500Z"
    assert snapshot_ids([later, "lost+found", ID, "1795269299-x"]) == [ID, later]
    assert manifest_path(ID) == f"snapshots/{ID}/manifest.json"
