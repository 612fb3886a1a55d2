"""A snapshot as a reader sees it: its manifest, its zones and its index rows, in numpy.

The layout is described in docs/snapshots.md and `quafka_proto.snapshot_format`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pyspark_quafka.errors import QuafkaError, QuafkaOptionError, SnapshotNotFoundError
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.errors import Malformed
from quafka_proto.log_format import INDEX_ROW_SIZE
from quafka_proto.records import crc32c
from quafka_proto.snapshot_format import (
    SNAPSHOTS,
    ZONE_SIZE,
    Manifest,
    Piece,
    check_zones,
    decode_manifest,
    is_snapshot_id,
    manifest_path,
)
from quafka_proto.varints import Bytes, Longs

_ROW = np.dtype(
    [
        ("global_id", ">u8"), ("base_offset", ">i8"), ("position", ">i8"), ("topic_hash", "V16"),
        ("max_timestamp", ">i8"), ("producer_id", ">i8"), ("base_sequence", ">i4"),
        ("org_id", ">u4"), ("partition", ">u4"), ("generation", ">u4"), ("record_count", ">u4"),
        ("length", ">u4"), ("producer_epoch", ">i2"), ("flags", ">u2"),
        ("leader_epoch", ">i4"), ("zero", "V4"),
        ("crc", ">u4"),
    ]
)  # fmt: skip
_ZONE = np.dtype(
    [
        ("key", "S28"), ("batches", ">u4"), ("first_offset", ">i8"), ("end_offset", ">i8"),
        ("records", ">i8"), ("bytes", ">i8"), ("max_timestamp", ">i8"), ("first_row", ">u4"),
        ("end_row", ">u4"), ("zero", "V8"),
    ]
)  # fmt: skip
assert (_ROW.itemsize, _ZONE.itemsize) == (INDEX_ROW_SIZE, ZONE_SIZE)
_HASH, _REST = slice(24, 40), slice(60, 72)
_CRC_SIZE = 4
_READERS = 16

Rows = NDArray[np.void]
Zones = NDArray[np.void]
Keys = NDArray[np.bytes_]


@dataclass(frozen=True)
class Source:
    """One partition to read, and its offsets: from `start` up to, not including, `end`."""

    topic: str
    partition: int
    org: int
    topic_hash: bytes
    generation: int
    start: int
    end: int

    @property
    def key(self) -> bytes:
        """How entries, rows and zones name it."""
        numbers = (self.org, self.partition, self.generation)
        return self.topic_hash + b"".join(number.to_bytes(4, "big") for number in numbers)


class Snapshot:
    """One snapshot in a store."""

    def __init__(self, store: ObjectStore, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest

    @property
    def id(self) -> str:
        """Its id."""
        return self.manifest.id

    def has(self, org: int) -> bool:
        """Whether an org's records are in it, if it has any."""
        return self.manifest.org in (None, org)

    @cached_property
    def zones(self) -> list[Zones]:
        """The zones of each piece."""
        paths = [piece.zones for piece in self.manifest.pieces]
        if not self.store.is_remote:
            return [self._zones(path) for path in paths]
        with ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(self._zones, paths))

    def _zones(self, path: str) -> Zones:
        try:
            body = check_zones(self.store.read(path))
        except ObjectNotFoundError as e:
            raise QuafkaError(f"snapshot {self.id}: there is no {path}; was it dropped?") from e
        except Malformed as e:
            raise QuafkaError(f"snapshot {self.id}: {path}: {e}") from e
        return np.frombuffer(body, _ZONE)


def snapshot_ids(store: ObjectStore) -> list[str]:
    """The ids of what may be snapshots, oldest first: each counts if its manifest is there."""
    return sorted(name for name in store.list_folders(SNAPSHOTS) if is_snapshot_id(name))


def open_snapshot(store: ObjectStore, as_of: str = "latest", org: int | None = None) -> Snapshot:
    """The snapshot of this id, or the newest one at a time, or the latest.

    Those of other orgs are passed over, if there is any that has this one.

    Raises:
        SnapshotNotFoundError: there is none; says which there are.
        QuafkaOptionError: `as_of` is none of these.
    """
    if is_snapshot_id(as_of):
        found = _read(store, as_of)
        if found is None:
            raise SnapshotNotFoundError(
                f"there is no snapshot {as_of} in {store.where}; {_known(store)}"
            )
        return found
    until = None if as_of.strip().lower() == "latest" else _milliseconds(as_of.strip())
    others = None
    for snapshot_id in reversed(snapshot_ids(store)):
        found = _read(store, snapshot_id)
        if found is not None and (until is None or found.manifest.cut_ms <= until):
            if org is None or found.has(org):
                return found
            others = others or found
    if others is not None:
        return others
    when = "" if until is None else f" as of {as_of}"
    raise SnapshotNotFoundError(f"there is no snapshot{when} in {store.where}; {_known(store)}")


def _read(store: ObjectStore, snapshot_id: str) -> Snapshot | None:
    path = manifest_path(snapshot_id)
    try:
        data = store.read(path)
    except ObjectNotFoundError:
        return None
    try:
        return Snapshot(store, decode_manifest(data))
    except Malformed as e:
        raise QuafkaError(f"{path}: {e}") from e


def _known(store: ObjectStore) -> str:
    ids = [name for name in snapshot_ids(store) if store.exists(manifest_path(name))]
    if not ids:
        return "make one with `quafka snapshot create`"
    return "there are " + ", ".join(ids[-5:]) + (" and older ones" if len(ids) > 5 else "")


def _milliseconds(text: str) -> int:
    """The end of what a text says: a time without a fraction, as commands print it, is a second."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError as e:
        raise QuafkaOptionError(
            f"asOf is {text!r}; allowed are latest, a snapshot's id, a time as in "
            "2026-11-21T12:00:00Z, or milliseconds since 1970"
        ) from e
    milliseconds = int(when.replace(tzinfo=when.tzinfo or UTC).timestamp() * 1_000)
    return milliseconds if "." in text else milliseconds + 999


# --- index rows -----------------------------------------------------------------------------


def read_rows(store: ObjectStore, piece: Piece, first: int, end: int) -> tuple[Rows, list[int]]:
    """Index rows of a piece, and the numbers of those that do not match their CRCs."""
    start = piece.index_offset + INDEX_ROW_SIZE * first
    data = store.read(piece.index, start, INDEX_ROW_SIZE * (end - first))
    if len(data) != INDEX_ROW_SIZE * (end - first):
        raise QuafkaError(f"{piece.index} is cut short: it has not the rows {first} to {end}")
    rows = np.frombuffer(data, _ROW)
    size = INDEX_ROW_SIZE
    body = size - _CRC_SIZE
    wrong = [
        number
        for number, crc in enumerate(rows["crc"].tolist())
        if crc32c(data[number * size : number * size + body]) != crc
    ]
    return rows, wrong


def keys_of(rows: Rows) -> Keys:
    """Which virtual topic each row is of, as `Source.key`."""
    data: Bytes = rows.view(np.uint8).reshape(len(rows), INDEX_ROW_SIZE)
    keys = np.concatenate([data[:, _HASH], data[:, _REST]], axis=1)
    return np.ascontiguousarray(keys).view("S28")[:, 0]


def which_source(keys: Keys, sources: Sequence[Source]) -> Longs:
    """Of each key the index among the sources; -1: it is of none."""
    wanted = np.array([source.key for source in sources], "S28")
    order = np.argsort(wanted)
    at = np.searchsorted(wanted[order], keys)
    at[at == len(order)] = 0
    found: Longs = order[at].astype(np.int64)
    found[wanted[found] != keys] = -1
    return found
