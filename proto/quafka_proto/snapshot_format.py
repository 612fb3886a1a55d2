"""A snapshot of the log: what lies where, and what is in it. The broker writes it; Spark reads it.

    DEST/snapshots/<id>/manifest.json     written last: without it there is no snapshot
    DEST/segments/<name>.log .oidx .zones shared by the snapshots, never changed once referenced
    DEST/lock                             held while snapshots are made or dropped; not for readers

Ids sort as text in the order of the cuts. The manifest says where everything is; names of files
mean nothing. docs/snapshots.md tells how a reader finds the batches of a topic.

What is in a segment of the log lies in one *piece* or more. A piece is a range of a log file, the
index rows of the entries in it, and their zones: one for each virtual topic that has entries
there. Zones file, all integers big-endian:

    header, 20 bytes
        0   8 magic b"QUAFKZON"
        8   1 version, 1
        9   3 zero
       12   4 number of zones
       16   4 CRC-32C of bytes 0-15 and of all zones
    zones of 88 bytes, ascending by their first 28 bytes:
        0  16 topic hash
       16   4 org id
       20   4 partition
       24   4 generation
       28   4 number of batches
       32   8 offset of the first record
       40   8 offset behind the last record
       48   8 number of records
       56   8 bytes of the record batches
       64   8 max timestamp, ms: no record is later; -1: none has one
       72   4 number of the first index row of it, in the piece
       76   4 number behind that of the last one; others' rows lie between
       80   8 zero

A reader refuses a version that it does not know. It ignores fields of the manifest that it does
not know: a change that an older reader must not ignore is a new version.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, cast

from quafka_proto.errors import Malformed
from quafka_proto.layout import Layout
from quafka_proto.log_format import INDEX_ROW, INDEX_ROW_SIZE, ROW_CRC_AT
from quafka_proto.records import crc32c

FORMAT = "quafka-snapshot"
VERSION = 1
SNAPSHOTS, SEGMENTS, MANIFEST = "snapshots", "segments", "manifest.json"

ZONES_MAGIC = b"QUAFKZON"
_ZONES_HEADER = Layout(magic="8s", version="B", unused="3x", count="I", crc="I")
ZONE = Layout(
    topic_hash="16s",
    org_id="I",
    partition="I",
    generation="I",
    batches="I",
    first_offset="Q",
    end_offset="Q",
    records="Q",
    bytes="Q",
    max_timestamp="q",
    first_row="I",
    end_row="I",
    unused="8x",
)
ZONES_HEADER_SIZE = _ZONES_HEADER.size
ZONE_SIZE = ZONE.size
_ZONES_HEAD = _ZONES_HEADER.before("crc")
_ZONE = ZONE.whole
_CRC = struct.Struct(">I")
_KEY = ZONE.before("batches")
_ROW = INDEX_ROW.joined("owner", "org_id", "generation").part_of_each(
    "base_offset", "topic_hash", "max_timestamp", "owner", "record_count", "length", "crc"
)  # what zones are made of
_SNAPSHOT_ID = re.compile(r"\d{8,}-\d{8}T\d{6}Z")


# --- the manifest -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries of a segment, and their index rows.

    Attributes:
        number: of the segment.
        salt: the segment's; entries' checksums begin with it.
        position: what the index rows call the first byte.
        length: bytes of the log; whole entries, with the file header where `position` is 0.
        log: the file that holds them, relative to DEST.
        log_offset: where in that file they begin.
        index: the file with the index rows, relative to DEST.
        index_offset: where in that file they begin.
        rows: how many there are.
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
        """Where in the file `log` the entry is that an index row has at `position`."""
        return self.log_offset + position - self.position


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of the log at the cut. Readers need not know it: it is for the next snapshot.

    Attributes:
        position: where the cut is.
        rows: how many entries lie before it.
        tail: a digest of the last of them; the same log has the same.
    """

    number: int
    salt: int
    position: int
    rows: int
    tail: str


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition at the cut. Records with offsets in [log_start, high_watermark) are there.

    Attributes:
        lost: ranges [first, end) of offsets that damage has cost.
    """

    partition: int
    log_start: int
    high_watermark: int
    last_stable_offset: int
    lost: list[list[int]] = field(default_factory=list[list[int]])


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic at the cut.

    Attributes:
        topic_hash: in hex; with org, partition and generation it names the entries of a partition.
        ulid, slug, created_ms: what a restore needs beside; empty in manifests of older versions.
    """

    org: int
    name: str
    uuid: str
    topic_hash: str
    generation: int
    partitions: list[Partition]
    configs: dict[str, str] = field(default_factory=dict[str, str])
    ulid: str = ""
    slug: str = ""
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a consumer group had committed in a partition.

    Attributes:
        topic_id: in hex, of a topic of another broker; empty: the topic is of this log.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group that had committed offsets."""

    org: int
    group: str
    offsets: list[CommittedOffset]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One snapshot.

    Attributes:
        id: sorts in the order of the cuts of one DEST.
        cut_ms: when the cut was taken, by the broker's clock, ms since 1970.
        cluster_id: of the log; snapshots of several logs have several DESTs.
        end_id: every record whose global id is below is in, if it lived; none other is.
        org: whose entries are in it; None: everybody's.
        lease_until_ms: from then on it may be removed; None: only when somebody drops it.
        evicted: [org, id]: idempotent producers of the org with ids below may have been forgotten;
            None in manifests of older versions.
        scheduled: a broker made it by itself, and drops it when there are newer ones.
        producer_ids_up_to: producer ids below may have been handed out; 0 in manifests of older
            versions.
    """

    id: str
    cut_ms: int
    cluster_id: str
    end_id: int
    org: int | None
    lease_until_ms: int | None
    pieces: list[Piece]
    topics: list[Topic]
    groups: list[Group]
    segments: list[Segment] = field(default_factory=list[Segment])
    producer_ids_up_to: int = 0
    evicted: list[list[int]] | None = None
    scheduled: bool = False

    def topic(self, org: int, name: str) -> Topic | None:
        """The topic of that name."""
        for topic in self.topics:
            if (topic.org, topic.name) == (org, name):
                return topic
        return None

    def files(self) -> Iterator[str]:
        """The files in DEST that it needs, some of them more than once."""
        for piece in self.pieces:
            yield from (piece.log, piece.index, piece.zones)


def manifest_path(snapshot_id: str) -> str:
    """Where a snapshot's manifest is, relative to DEST."""
    return f"{SNAPSHOTS}/{snapshot_id}/{MANIFEST}"


def is_snapshot_id(text: str) -> bool:
    """Whether a name under DEST/snapshots can be a snapshot's."""
    return _SNAPSHOT_ID.fullmatch(text) is not None


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON."""
    values = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        Malformed: it is not one, not whole, or of a version that is not known; says what is wrong.
    """
    try:
        values = json.loads(data)
    except ValueError as e:
        raise Malformed(f"the manifest is not JSON: {e}") from e
    if not isinstance(values, dict) or cast(Any, values).get("format") != FORMAT:
        raise Malformed(f'the manifest does not say "format": "{FORMAT}"')
    fields = cast("dict[str, Any]", values)
    if fields.get("version") != VERSION:
        raise Malformed(f"the snapshot has version {fields.get('version')}; known is {VERSION}")
    read = _Fields(fields, "the manifest")
    return Manifest(
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
    )


class _Fields:
    """A JSON object whose fields have the types that they should have. All raise Malformed."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self.where = where

    def _get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        value = self._values.get(name, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Malformed(f"{self.where}: {name!r} is {value!r:.50}")
        return value

    def flag(self, name: str) -> bool:
        """False where it is not there."""
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
        """A path that stays below DEST."""
        path = self.text(name)
        if not path.startswith(f"{SEGMENTS}/") or ".." in path.split("/"):
            raise Malformed(f"{self.where}: {name!r} is {path!r:.200}")
        return path

    def texts(self, name: str) -> dict[str, str]:
        return {str(key): str(value) for key, value in self._get(name, dict).items()}

    def ranges(self, name: str) -> list[list[int]]:
        found = cast("list[list[int]]", self._get(name, list))
        try:
            return [[int(first), int(end)] for first, end in found]
        except (TypeError, ValueError) as e:
            raise Malformed(f"{self.where}: {name!r} has what is no range: {e}") from e

    def items(self, name: str) -> Iterator[_Fields]:
        for at, item in enumerate(cast("list[Any]", self._get(name, list))):
            where = f"{self.where}, {name}[{at}]"
            if not isinstance(item, dict):
                raise Malformed(f"{where} is no object")
            yield _Fields(cast("dict[str, Any]", item), where)


def _segment(item: _Fields) -> Segment:
    return Segment(
        item.number("number"),
        item.number("salt"),
        item.number("position"),
        item.number("rows"),
        item.text("tail"),
    )


def _piece(item: _Fields) -> Piece:
    piece = Piece(
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


def _topic(item: _Fields) -> Topic:
    return Topic(
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


def _partition(item: _Fields) -> Partition:
    return Partition(
        item.number("partition"),
        item.number("log_start"),
        item.number("high_watermark"),
        item.number("last_stable_offset"),
        item.ranges("lost"),
    )


def _group(item: _Fields) -> Group:
    offsets = [
        CommittedOffset(
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
    return Group(item.number("org"), item.text("group"), offsets)


# --- zones ------------------------------------------------------------------------------------


class Zone(NamedTuple):
    """What a piece has of one virtual topic."""

    topic_hash: bytes
    org_id: int
    partition: int
    generation: int
    batches: int
    first_offset: int
    end_offset: int
    records: int
    bytes: int
    max_timestamp: int
    first_row: int
    end_row: int


class ZoneBuilder:
    """Makes the zones of a piece from its index rows, as they come."""

    def __init__(self) -> None:
        # By topic hash, org, partition and generation, as they stand in a row and in a zone.
        self._found: dict[bytes, list[int]] = {}
        self._number = 0

    def add(self, rows: bytes | memoryview) -> None:
        """The next rows, which are verified.

        Raises:
            Malformed: one does not match its CRC, or is cut short.
        """
        if len(rows) % INDEX_ROW_SIZE:
            raise Malformed("an index row is cut short")
        found, number, at = self._found, self._number, 0
        for offset, hash_, time, rest, count, length, crc in _ROW.iter_unpack(rows):
            if crc32c(rows[at : at + ROW_CRC_AT]) != crc:
                raise Malformed("an index row does not match its CRC")
            zone = found.get(hash_ + rest)
            if zone is None:
                zone = found[hash_ + rest] = [0, offset, 0, 0, 0, -1, number, 0]
            at += INDEX_ROW_SIZE
            number += 1
            zone[0] += 1
            if offset < zone[1]:
                zone[1] = offset
            if offset + count > zone[2]:
                zone[2] = offset + count
            zone[3] += count
            zone[4] += length
            if time > zone[5]:
                zone[5] = time
            zone[7] = number
        self._number = number

    def zones(self) -> list[Zone]:
        """The zones of all rows so far."""
        return [Zone(*_KEY.unpack(key), *values) for key, values in sorted(self._found.items())]


def zones_of(rows: bytes | memoryview) -> list[Zone]:
    """The zones of index rows, which are verified.

    Raises:
        Malformed: a row does not match its CRC.
    """
    builder = ZoneBuilder()
    builder.add(rows)
    return builder.zones()


def encode_zones(zones: Sequence[Zone]) -> bytes:
    """A zones file."""
    head = _ZONES_HEAD.pack(ZONES_MAGIC, VERSION, len(zones))
    body = b"".join(_ZONE.pack(*zone) for zone in zones)
    return b"".join((head, _CRC.pack(crc32c(body, crc32c(head))), body))


def decode_zones(data: bytes | memoryview) -> list[Zone]:
    """Read a zones file.

    Raises:
        Malformed: it is not one, not whole, or of a version that is not known.
    """
    return [Zone(*values) for values in _ZONE.iter_unpack(check_zones(data))]


def check_zones(data: bytes | memoryview) -> memoryview:
    """The zones of a verified file, 88 bytes each: for who reads them all at once.

    Raises:
        Malformed: it is not one, not whole, or of a version that is not known.
    """
    view = memoryview(data)
    if len(view) < ZONES_HEADER_SIZE:
        raise Malformed("the zones file is cut short")
    magic, version, count = _ZONES_HEAD.unpack_from(view)
    if magic != ZONES_MAGIC:
        raise Malformed("the zones file has another magic")
    if version != VERSION:
        raise Malformed(f"the zones file has version {version}; known is {VERSION}")
    body = view[ZONES_HEADER_SIZE:]
    if len(body) != ZONE_SIZE * count:
        raise Malformed("the zones file is cut short")
    (crc,) = _CRC.unpack_from(view, _ZONES_HEAD.size)
    if crc32c(body, crc32c(view[: _ZONES_HEAD.size])) != crc:
        raise Malformed("the zones file does not match its CRC")
    return body


def snapshot_ids(names: Iterable[str]) -> list[str]:
    """The snapshots' ids among the names under DEST/snapshots, oldest first.

    An id counts only if its manifest is there: see `manifest_path`.
    """
    return sorted(name for name in names if is_snapshot_id(name))
