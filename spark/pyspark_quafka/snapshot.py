"""A snapshot's manifest and zones, and how a reader finds the snapshot.

The layout is described in docs/snapshots.md and `quafka_proto.snapshot_format`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pyspark_quafka.aborted import Transactions, by_partition
from pyspark_quafka.errors import QuafkaError, QuafkaOptionError, SnapshotNotFoundError
from pyspark_quafka.index_rows import ZONES
from quafka_loop import threads
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import (
    SNAPSHOTS,
    SnapshotManifest,
    decode_manifest,
    is_snapshot_id,
    manifest_path,
)
from quafka_proto.zone_format import check_zones

_READERS = 16

Zones = NDArray[np.void]


class Snapshot:
    """One snapshot in a store."""

    def __init__(self, store: ObjectStore, manifest: SnapshotManifest) -> None:
        self.store = store
        self.manifest = manifest

    @property
    def id(self) -> str:
        """The snapshot's id."""
        return self.manifest.id

    def has(self, org: int) -> bool:
        """Whether the snapshot has an org's records."""
        return self.manifest.org in (None, org)

    @cached_property
    def zones(self) -> list[Zones]:
        """The zones of each piece."""
        paths = [piece.zones for piece in self.manifest.pieces]
        if not self.store.is_remote:
            return [self._zones(path) for path in paths]
        with threads.ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(self._zones, paths))

    @cached_property
    def aborted(self) -> dict[bytes, Transactions]:
        """The aborted transactions of each partition that has any, by `PartitionRange.key`."""
        return by_partition(self.manifest)

    def _zones(self, path: str) -> Zones:
        try:
            body = check_zones(self.store.read(path))
        except ObjectNotFoundError as e:
            raise QuafkaError(f"snapshot {self.id}: there is no {path}; was it dropped?") from e
        except Malformed as e:
            raise QuafkaError(f"snapshot {self.id}: {path}: {e}") from e
        return np.frombuffer(body, ZONES)


def snapshot_ids(store: ObjectStore) -> list[str]:
    """Possible ids of snapshots, oldest first: a snapshot exists if its manifest does."""
    return sorted(name for name in store.list_folders(SNAPSHOTS) if is_snapshot_id(name))


def open_snapshot(store: ObjectStore, as_of: str = "latest", org: int | None = None) -> Snapshot:
    """The snapshot with this id, the newest one as of a time, or the latest.

    Snapshots of other orgs are passed over, unless no other exists.

    Raises:
        SnapshotNotFoundError: none exists; the message names those that do.
        QuafkaOptionError: `as_of` is not an id, a time or latest.
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
    """The last ms of the time in a text. Commands print whole seconds, so those mean all of one."""
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
