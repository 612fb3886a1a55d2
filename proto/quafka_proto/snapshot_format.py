"""The files of a snapshot and its manifest. The broker writes snapshots; Spark reads them.

    DEST/snapshots/<id>/manifest.json     written last: without it there is no snapshot
    DEST/segments/<name>.log .oidx .zones shared by snapshots, never changed once referenced
    DEST/lock                             held while snapshots are made or dropped; not for readers

Ids sort as text in the order of the cuts. The manifest has the places of all parts: names of files
have no meaning. docs/snapshots.md describes how a reader finds the batches of a topic.

The contents of a segment are in one or more *pieces*. A piece is a range of a log file, the index
rows of its entries (`log_format`), and its zones (`zone_format`).

A reader refuses an unknown version. It ignores unknown fields of the manifest: a change that an
older reader must not ignore is a new version.

Version 2 is version 1 with open or aborted transactions. A reader of version 1 would consider their
records committed. A manifest without transactions is still written as version 1.

Version 3 is version 2 with copies of records that another system stores. Their pieces have numbers
from FIRST_COPY on, which no segment of the log has. A restore by an earlier version would mistake
them for segments.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple, cast

from quafka_proto.errors import Malformed

FORMAT = "quafka-snapshot"
VERSION, WITH_TRANSACTIONS, WITH_COPIES = 1, 2, 3
FIRST_COPY = 1 << 36
"""Pieces with numbers from this one on have copies of records that another system stores."""
SHARD_BITS = 26
"""With several shards, the shard is above these bits of the numbers of segments and pieces."""
SNAPSHOTS, SEGMENTS, MANIFEST = "snapshots", "segments", "manifest.json"
_PIECES_IN = (SEGMENTS, "files", "log", "zones")
"""The folders of pieces: the last three are those of a log in an object store (`chain_format`)."""
_SNAPSHOT_ID = re.compile(r"\d{8,}-\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """Entries of a segment, and their index rows.

    Attributes:
        number: of the segment.
        salt: that of the segment; entries' checksums begin with it.
        position: the position of the first byte in the index rows.
        length: bytes of the log; whole entries, with the file header if `position` is 0.
        log: the file with the entries, relative to DEST.
        log_offset: the offset of the first entry in that file.
        index: the file with the index rows, relative to DEST.
        index_offset: the offset of the first row in that file.
        rows: the number of index rows.
        zones: the zones file, relative to DEST.
    """

    number: int
    salt: int
    position: int
    length: int
    log: str
    log_offset: int
    index: str
    index_offset: int
    rows: int
    zones: str

    def offset_of(self, position: int) -> int:
        """The offset in the file `log` of the entry at `position` in the index rows."""
        return self.log_offset + position - self.position


@dataclass(frozen=True, slots=True)
class SnapshotSegment:
    """A segment of the log at the cut. Only the next snapshot needs it.

    Attributes:
        position: the position of the cut.
        rows: the number of entries before the cut.
        tail: a digest of the last entries, which identifies the log.
    """

    number: int
    salt: int
    position: int
    rows: int
    tail: str


class OpenTransaction(NamedTuple):
    """A transaction that had records in a partition, and had not ended at the cut."""

    producer_id: int
    first_offset: int


class SnapshotAbortedTransaction(NamedTuple):
    """An aborted transaction in a partition. `last_offset` is that of its control batch.

    The producer's transactional batches between the two offsets belong to the transaction.
    """

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotPartition:
    """One partition at the cut, with the records of offsets [log_start, high_watermark).

    Attributes:
        last_stable_offset: the first offset of the oldest open transaction; the high watermark
            if none is open.
        lost: ranges [first, end) of offsets that were lost to damage.
        aborted: by their last offsets, those from the log start on.
        copied: the number of its records, if another system stores them: its offsets have gaps, and
            `lost` has the records that could not be copied. -1: the log stores them.
        gone: the number of offsets whose batches compaction has removed.
    """

    partition: int
    log_start: int
    high_watermark: int
    last_stable_offset: int
    lost: list[list[int]] = field(default_factory=list[list[int]])
    open: list[OpenTransaction] = field(default_factory=list[OpenTransaction])
    aborted: list[SnapshotAbortedTransaction] = field(
        default_factory=list[SnapshotAbortedTransaction]
    )
    copied: int = -1
    gone: int = 0

    @property
    def has_transactions(self) -> bool:
        """Whether some records are aborted or not committed yet."""
        return bool(self.open or self.aborted)


@dataclass(frozen=True, slots=True)
class SnapshotTopic:
    """A topic at the cut.

    Attributes:
        topic_hash: in hex; with org, partition and generation it identifies the entries of a
            partition.
        ulid, slug, created_ms: for a restore; empty in manifests of older versions.
    """

    org: int
    name: str
    uuid: str
    topic_hash: str
    generation: int
    partitions: list[SnapshotPartition]
    configs: dict[str, str] = field(default_factory=dict[str, str])
    ulid: str = ""
    slug: str = ""
    created_ms: int = 0

    @property
    def is_copied(self) -> bool:
        """Whether another system stores its records."""
        return any(partition.copied >= 0 for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class SnapshotCommittedOffset:
    """The committed offset of a consumer group in a partition.

    Attributes:
        topic_id: in hex, for a topic of another broker; empty: a topic of this log.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotGroup:
    """A consumer group that had committed offsets."""

    org: int
    group: str
    offsets: list[SnapshotCommittedOffset]


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """One snapshot.

    Attributes:
        id: sorts in the order of the cuts in one DEST.
        cut_ms: the time of the cut by the broker's clock, ms since 1970.
        cluster_id: that of the log; each log has its own DEST.
        end_id: the snapshot has exactly the live records with smaller global ids.
        org: the org whose entries it has; None: all orgs.
        lease_until_ms: the time from which it may be removed; None: it is kept until dropped.
        evicted: pairs [org, id]: the broker may have evicted idempotent producers of the org with
            smaller ids; None in manifests of older versions.
        scheduled: made by the broker's schedule, which drops it when it has newer ones.
        shards: the number of its logs; only a snapshot of one log can be restored.
        producer_ids_up_to: smaller producer ids may be in use; 0 in manifests of older
            versions.
    """

    id: str
    cut_ms: int
    cluster_id: str
    end_id: int
    org: int | None
    lease_until_ms: int | None
    pieces: list[SegmentPiece]
    topics: list[SnapshotTopic]
    groups: list[SnapshotGroup]
    segments: list[SnapshotSegment] = field(default_factory=list[SnapshotSegment])
    producer_ids_up_to: int = 0
    evicted: list[list[int]] | None = None
    scheduled: bool = False
    shards: int = 1

    def topic(self, org: int, name: str) -> SnapshotTopic | None:
        """The topic of that name."""
        for topic in self.topics:
            if (topic.org, topic.name) == (org, name):
                return topic
        return None

    def of_the_log(self) -> SnapshotManifest:
        """The manifest without copies: topics with records in another system have no offsets."""
        topics = [
            replace(
                topic,
                partitions=[SnapshotPartition(p.partition, 0, 0, 0) for p in topic.partitions],
            )
            if topic.is_copied
            else topic
            for topic in self.topics
        ]
        pieces = [piece for piece in self.pieces if piece.number < FIRST_COPY]
        segments = [segment for segment in self.segments if segment.number < FIRST_COPY]
        return replace(self, topics=topics, pieces=pieces, segments=segments)

    def number_in_file(self, piece: SegmentPiece) -> int:
        """The number of a piece's segment in the header of its file."""
        return piece.number if self.shards == 1 else piece.number & ((1 << SHARD_BITS) - 1)

    def files(self) -> Iterator[str]:
        """The files in DEST that the snapshot needs, possibly repeated."""
        for piece in self.pieces:
            yield from (piece.log, piece.index, piece.zones)


def manifest_path(snapshot_id: str) -> str:
    """The path of a snapshot's manifest, relative to DEST."""
    return f"{SNAPSHOTS}/{snapshot_id}/{MANIFEST}"


def is_snapshot_id(text: str) -> bool:
    """Whether a name under DEST/snapshots has the form of a snapshot id."""
    return _SNAPSHOT_ID.fullmatch(text) is not None


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    """The manifest as JSON."""
    transactions = any(p.has_transactions for topic in manifest.topics for p in topic.partitions)
    version = WITH_TRANSACTIONS if transactions else VERSION
    if any(topic.is_copied for topic in manifest.topics):
        version = WITH_COPIES
    values = {"format": FORMAT, "version": version, **asdict(replace(manifest, topics=[]))}
    values["topics"] = [
        asdict(replace(topic, partitions=[])) | {"partitions": list(map(_values, topic.partitions))}
        for topic in manifest.topics
    ]
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def _values(partition: SnapshotPartition) -> dict[str, Any]:
    """A partition for JSON. `asdict` would copy each of its transactions, in 20 µs."""
    values = {field.name: getattr(partition, field.name) for field in fields(partition)}
    for name in ("open", "aborted"):
        if not values[name]:
            del values[name]
    if partition.copied < 0:
        del values["copied"]
    if not partition.gone:
        del values["gone"]
    return values


def new_snapshot_id(number: int, cut_ms: int) -> str:
    """The id of a snapshot; `number` grows from snapshot to snapshot."""
    return f"{number:010d}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(cut_ms / 1000))}"


def decode_manifest(data: bytes) -> SnapshotManifest:
    """Read a manifest.

    Raises:
        Malformed: not a manifest, incomplete, or of an unknown version; the message has the reason.
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Malformed(f"the manifest is not JSON: {e}") from e
    if not isinstance(values, dict) or cast(Any, values).get("format") != FORMAT:
        raise Malformed(f'the manifest lacks "format": "{FORMAT}"')
    found = cast("dict[str, Any]", values)
    if found.get("version") not in (VERSION, WITH_TRANSACTIONS, WITH_COPIES):
        raise Malformed(
            f"the snapshot has version {found.get('version')}; known are {VERSION} to {WITH_COPIES}"
        )
    read = _Fields(found, "the manifest")
    return SnapshotManifest(
        read.text("id"),
        read.number("cut_ms"),
        read.text("cluster_id"),
        read.number("end_id"),
        read.number_or_none("org"),
        read.number_or_none("lease_until_ms"),
        [_piece(item) for item in read.items("pieces")],
        [_topic(item) for item in read.items("topics")],
        [_group(item) for item in read.items("groups")],
        [_segment(item) for item in read.items("segments")],
        read.number("producer_ids_up_to", 0),
        read.ranges("evicted") if read.has("evicted") else None,
        read.flag("scheduled"),
        read.number("shards", 1),
    )


class _Fields:
    """A JSON object. Its methods raise Malformed if a field has another type."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self.where = where

    def _get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        value = self._values.get(name, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Malformed(f"{self.where}: {name!r} is {value!r:.50}")
        return value

    def flag(self, name: str) -> bool:
        """A flag; False if it is absent."""
        return self._values.get(name) is True

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def number(self, name: str, default: int | None = None) -> int:
        return cast(int, self._get(name, int, default))

    def number_or_none(self, name: str) -> int | None:
        return cast("int | None", self._get(name, (int, type(None))))

    def text(self, name: str, default: str | None = None) -> str:
        return cast(str, self._get(name, str, default))

    def path(self, name: str) -> str:
        """A path below DEST, in a folder that may have pieces."""
        path = self.text(name)
        folder, *rest = path.split("/")
        if folder not in _PIECES_IN or not rest or ".." in rest:
            raise Malformed(f"{self.where}: {name!r} is {path!r:.200}")
        return path

    def texts(self, name: str) -> dict[str, str]:
        return {str(key): str(value) for key, value in self._get(name, dict).items()}

    def ranges(self, name: str) -> list[list[int]]:
        found = cast("list[list[int]]", self._get(name, list))
        try:
            return [[int(first), int(end)] for first, end in found]
        except (TypeError, ValueError) as e:
            raise Malformed(f"{self.where}: {name!r} is not a list of ranges: {e}") from e

    def numbers(self, name: str, count: int) -> Iterator[list[int]]:
        """Lists of `count` whole numbers each; empty if the field is absent."""
        for item in cast("list[Any]", self._get(name, list, [])):
            numbers = cast("list[Any]", item) if isinstance(item, list) else []
            if len(numbers) != count or set(map(type, numbers)) != {int}:
                raise Malformed(f"{self.where}: {name!r} has {item!r:.50}, not {count} numbers")
            yield numbers

    def items(self, name: str) -> Iterator[_Fields]:
        for at, item in enumerate(cast("list[Any]", self._get(name, list))):
            where = f"{self.where}, {name}[{at}]"
            if not isinstance(item, dict):
                raise Malformed(f"{where} is not an object")
            yield _Fields(cast("dict[str, Any]", item), where)


def _segment(item: _Fields) -> SnapshotSegment:
    return SnapshotSegment(
        item.number("number"),
        item.number("salt"),
        item.number("position"),
        item.number("rows"),
        item.text("tail"),
    )


def _piece(item: _Fields) -> SegmentPiece:
    piece = SegmentPiece(
        item.number("number"),
        item.number("salt"),
        item.number("position"),
        item.number("length"),
        item.path("log"),
        item.number("log_offset"),
        item.path("index"),
        item.number("index_offset"),
        item.number("rows"),
        item.path("zones"),
    )
    if min(piece.position, piece.length, piece.log_offset, piece.index_offset, piece.rows) < 0:
        raise Malformed(f"{item.where} has a negative number")
    return piece


def _topic(item: _Fields) -> SnapshotTopic:
    return SnapshotTopic(
        item.number("org"),
        item.text("name"),
        item.text("uuid"),
        item.text("topic_hash"),
        item.number("generation"),
        [_partition(partition) for partition in item.items("partitions")],
        item.texts("configs"),
        item.text("ulid", ""),
        item.text("slug", ""),
        item.number("created_ms", 0),
    )


def _partition(item: _Fields) -> SnapshotPartition:
    return SnapshotPartition(
        item.number("partition"),
        item.number("log_start"),
        item.number("high_watermark"),
        item.number("last_stable_offset"),
        item.ranges("lost"),
        [OpenTransaction(*numbers) for numbers in item.numbers("open", 2)],
        [SnapshotAbortedTransaction(*numbers) for numbers in item.numbers("aborted", 3)],
        item.number("copied", -1),
        item.number("gone", 0),
    )


def _group(item: _Fields) -> SnapshotGroup:
    offsets = [
        SnapshotCommittedOffset(
            committed.text("topic"),
            committed.number("partition"),
            committed.number("offset"),
            committed.number("leader_epoch"),
            committed.text("metadata"),
            committed.number("committed_ms"),
            committed.text("topic_id", ""),
        )
        for committed in item.items("offsets")
    ]
    return SnapshotGroup(item.number("org"), item.text("group"), offsets)


def merged_topics(topics: Iterable[SnapshotTopic]) -> list[SnapshotTopic]:
    """Merge topics of several shards. Of a partition in several shards, the one with the highest
    high watermark counts: the others only know of it."""
    found: dict[tuple[int, str], SnapshotTopic] = {}
    for topic in topics:
        known = found.setdefault((topic.org, topic.name), topic)
        if known is topic:
            continue
        partitions = {each.partition: each for each in known.partitions}
        for each in topic.partitions:
            other = partitions.get(each.partition)
            if other is None or each.high_watermark > other.high_watermark:
                partitions[each.partition] = each
        merged = [partitions[number] for number in sorted(partitions)]
        newest = max((known, topic), key=lambda one: one.generation)
        found[topic.org, topic.name] = replace(newest, partitions=merged)
    return list(found.values())


def snapshot_ids(names: Iterable[str]) -> list[str]:
    """The snapshot ids among the names under DEST/snapshots, oldest first.

    A snapshot exists only if its manifest does: see `manifest_path`.
    """
    return sorted(name for name in names if is_snapshot_id(name))
