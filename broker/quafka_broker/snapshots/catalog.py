"""The snapshots of one DEST: listing, loading, dropping, and collecting garbage."""

from __future__ import annotations

import re
from collections.abc import Iterable

from quafka_broker.snapshots.destination import Destination, Lock
from quafka_loop import clock
from quafka_objects.folder import final_path
from quafka_objects.store import ObjectStore
from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import (
    SEGMENTS,
    SNAPSHOTS,
    SnapshotManifest,
    decode_manifest,
    is_snapshot_id,
    manifest_path,
)

_CHECK_SECONDS = 1.0
_SEGMENT_FILE = re.compile(rf"{SEGMENTS}/\d{{12,}}-[0-9a-f]{{16}}(-[-\w]+)?\.(log|oidx|zones)")
"""Files as named by `Creation`."""
_OLD_PART = ".part"
"""The suffix of interrupted writes by older versions."""


def load_all(store: ObjectStore, but: str = "") -> list[SnapshotManifest]:
    """Load all snapshots, oldest first, including expired ones; `but` is an id to leave out.

    Raises:
        OSError: the store fails.
        Malformed: this version cannot read a manifest; the message names it.
    """
    return [load(store, snapshot_id) for snapshot_id in snapshot_ids(store) if snapshot_id != but]


def snapshot_ids(store: ObjectStore) -> list[str]:
    """The ids of all snapshots, oldest first. Raises OSError."""
    paths = (found.path for found in store.list_objects(SNAPSHOTS))
    return sorted(path.split("/")[1] for path in paths if _is_manifest(path))


def load(store: ObjectStore, snapshot_id: str) -> SnapshotManifest:
    """Load one snapshot.

    Raises:
        FileNotFoundError: no snapshot has that id.
        OSError: the store fails.
        Malformed: this version cannot read the manifest.
    """
    if not is_snapshot_id(snapshot_id):
        raise FileNotFoundError(f"{snapshot_id!r} is not the id of a snapshot")
    try:
        data = store.read(manifest_path(snapshot_id))
    except FileNotFoundError as e:
        raise FileNotFoundError(f"there is no snapshot {snapshot_id}") from e
    try:
        return decode_manifest(data)
    except Malformed as e:
        raise Malformed(f"snapshot {snapshot_id}: {e}") from e


def expired(manifest: SnapshotManifest) -> bool:
    """Whether a snapshot's lease has ended."""
    until = manifest.lease_until_ms
    return until is not None and until <= clock.time_ns() // 1_000_000


def drop(store: Destination, lock: Lock, snapshot_id: str) -> int:
    """Remove a snapshot and the files that no other one needs; returns the bytes freed.

    The snapshot's own manifest may be damaged.

    Raises:
        FileNotFoundError: no snapshot has that id.
        OSError, Malformed: see `load_all`.
    """
    if snapshot_id not in snapshot_ids(store):
        raise FileNotFoundError(f"there is no snapshot {snapshot_id}")
    others = load_all(store, but=snapshot_id)
    left = [manifest for manifest in others if not expired(manifest)]
    lock.check()
    for gone in sorted(
        {snapshot_id, *(other.id for other in others)} - {other.id for other in left}
    ):
        remove_manifest(store, gone)
    return collect_garbage(store, lock, left)


def remove_manifest(store: Destination, snapshot_id: str) -> None:
    """Delete a manifest: the snapshot ceases to exist. Raises OSError."""
    store.delete(manifest_path(snapshot_id))


def collect_garbage(store: Destination, lock: Lock, manifests: Iterable[SnapshotManifest]) -> int:
    """Delete all files that none of these snapshots needs; returns their bytes.

    Only files with names that commands write are deleted: DEST may have other files, too.

    The lock must be held: the files of an unfinished snapshot look like garbage. A command that was
    suspended notices this by the clock, and checks that it still has the lock.

    Raises:
        OSError: some files were not deleted.
    """
    needed: set[str] = set()
    for manifest in manifests:
        needed.add(manifest_path(manifest.id))
        needed.update(manifest.files())
    freed = 0
    checked = 0.0
    for path, size in [*store.list_objects(SNAPSHOTS), *store.list_objects(SEGMENTS)]:
        if path not in needed and _may_be_garbage(path):
            if abs(clock.time() - checked) > _CHECK_SECONDS:
                lock.check()
                checked = clock.time()
            store.delete(path)
            freed += size
    return freed


def _may_be_garbage(path: str) -> bool:
    path = final_path(path) or path.removesuffix(_OLD_PART)
    return _is_manifest(path) or _SEGMENT_FILE.fullmatch(path) is not None


def _is_manifest(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and is_snapshot_id(parts[1]) and path == manifest_path(parts[1])
