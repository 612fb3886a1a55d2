"""Restores a snapshot into a new data folder, on which a broker starts and clients continue.

All files are written below NEW/restoring, verified there, and opened as a broker opens them. Then
one rename, to NEW/wal, makes them a log. A broker does not start while NEW/restoring exists, so an
interrupted restore leaves no log; the next restore starts again.

The log begins a new leader epoch at its first start: records written since the snapshot are gone,
and their offsets will be used again.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.restored_files import RestoredFiles
from quafka_broker.snapshots.restored_state import make_startable
from quafka_broker.snapshots.verify import SnapshotVerification
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.disk import RealDisk, sync_folder
from quafka_broker.wal.epoch_file import require_new_epoch
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.segment import Segment
from quafka_loop import file_modes
from quafka_objects.folder import FolderStore
from quafka_objects.store import ObjectStore
from quafka_proto.log_format import INDEX_ROW_SIZE
from quafka_proto.snapshot_format import SegmentPiece, SnapshotManifest

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""

_KEY = ".key"
_EMPTY = ("broker.lock", "lost+found", "restoring")


class RestoreError(Exception):
    """Nothing was restored. The message gives the reason."""


class DamagedSnapshotError(RestoreError):
    """The snapshot is damaged. `faults` has a sentence for each fault."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("the snapshot is damaged: nothing is restored")
        self.faults = faults


class Restored(NamedTuple):
    """A restored log.

    Attributes:
        manifest: with the restored topics and groups.
        bytes: the size of the log.
        faults: the damage of the snapshot, if it was accepted.
    """

    manifest: SnapshotManifest
    bytes: int
    faults: list[str]


def restore(
    store: ObjectStore,
    manifest: SnapshotManifest,
    data: Path,
    *,
    org: int | None = None,
    skip_damage: bool = False,
    progress: Progress = lambda _done, _all: None,
    step: Callable[[str], None] = lambda _name: None,
) -> Restored:
    """Restore a snapshot into `data`, which may contain only key files. Blocks.

    Args:
        org: restore only this org's records, topics and groups.
        skip_damage: restore the undamaged rest of a damaged snapshot.
        step: called before each change of `data`, with a description of it.

    Raises:
        RestoreError: the restore is impossible, or the snapshot is damaged; nothing is restored.
        StartupError: a broker holds the folder, or it cannot be written.
        OSError: the store or the folder fails.
    """
    if manifest.shards > 1:
        raise RestoreError(
            f"it is a snapshot of {manifest.shards} logs, and a broker's folder has one"
        )
    manifest, whole = _part_of(manifest.of_the_log(), org)
    with _new_data(data, _size(manifest)) as folder:
        step("begin")
        file_modes.make_folder(folder.restoring)
        sync_folder(data)
        faults: list[str] = []
        done = 0

        def copied(count: int) -> None:
            nonlocal done
            done += count
            progress(done, _size(manifest))

        files = RestoredFiles(store, folder.restoring, faults, copied)
        pieces: list[SegmentPiece] = []
        for number, some in groupby(manifest.pieces, key=lambda piece: piece.number):
            step(f"segment {number}")
            piece = _segment(files, list(some), manifest.org, org)
            if piece is not None:
                pieces.append(piece)
        # An empty segment becomes the active one, so all restored segments count as durable.
        last = max((segment.number for segment in manifest.segments), default=-1)
        Segment.create(RealDisk(folder.restoring), last + 1).close()
        step("open")
        _verify(folder.restoring, replace(manifest, pieces=pieces), faults)
        if faults and not skip_damage:
            raise DamagedSnapshotError(faults)
        faults += _open(folder.restoring, manifest, not whole, skip_damage)
        if faults and not skip_damage:
            raise DamagedSnapshotError(faults)
        require_new_epoch(RealDisk(folder.restoring), restored=True)
        sync_folder(folder.restoring)
        step("rename")
        folder.restoring.rename(folder.wal)
        sync_folder(data)
    return Restored(manifest, sum(piece.length for piece in pieces), faults)


def _part_of(manifest: SnapshotManifest, org: int | None) -> tuple[SnapshotManifest, bool]:
    """The part of a snapshot to restore, and whether it is the whole log."""
    if org is None or manifest.org == org:
        return manifest, manifest.org is None
    if manifest.org is not None:
        raise RestoreError(f"the snapshot has only org {manifest.org}")
    topics = [topic for topic in manifest.topics if topic.org == org]
    groups = [group for group in manifest.groups if group.org == org]
    if not topics and not groups:
        raise RestoreError(f"the snapshot has nothing of org {org}")
    return replace(manifest, topics=topics, groups=groups), False


def _segment(
    files: RestoredFiles, pieces: list[SegmentPiece], of_org: int | None, org: int | None
) -> SegmentPiece | None:
    if of_org is not None:
        return files.write_merged(pieces)
    return files.write_raw(pieces) if org is None else files.write_org(pieces, org)


def _verify(folder: Path, manifest: SnapshotManifest, faults: list[str]) -> None:
    """Verify the written files by reading them. Raises OSError."""
    verification = SnapshotVerification(FolderStore(folder), manifest, zones=False)
    for report in verification.pieces():
        faults += [f"segment {report.piece.number}: {fault}" for fault in report.faults]
    faults += verification.missing()


def _open(folder: Path, manifest: SnapshotManifest, is_part: bool, fill: bool) -> list[str]:
    """Open the log; returns its differences from the manifest."""
    try:
        return asyncio.run(make_startable(folder, manifest, is_part=is_part, fill=fill))
    except (DamagedLogError, BadRegistryError, StorageError) as e:
        raise RestoreError(f"no broker could start on the log: {e}") from e


def _size(manifest: SnapshotManifest) -> int:
    return sum(piece.length + INDEX_ROW_SIZE * piece.rows for piece in manifest.pieces)


@contextmanager
def _new_data(data: Path, size: int) -> Generator[DataFolder]:
    """Hold a data folder without a log; after a failure, remove the written files."""
    if data.exists() and not data.is_dir():
        raise RestoreError(f"{data} is not a folder")
    found = sorted(path.name for path in data.iterdir()) if data.exists() else []
    others = [name for name in found if name not in _EMPTY and not name.endswith(_KEY)]
    if others:
        raise RestoreError(f"{data} is not empty: it has {', '.join(others[:5])}")
    folder = DataFolder(data)
    folder.lock()
    try:
        _make_ready(folder, data, size)
        yield folder
    except Exception:
        shutil.rmtree(folder.restoring, ignore_errors=True)
        raise
    finally:
        folder.release()


def _make_ready(folder: DataFolder, data: Path, size: int) -> None:
    """Remove the files of an interrupted restore, and check the free space."""
    if folder.wal.exists():  # created since the check
        raise RestoreError(f"{data} has a log now")
    if folder.restoring.exists():
        shutil.rmtree(folder.restoring)
    free = shutil.disk_usage(data).free
    if free < size:
        raise RestoreError(f"{data} has {free} bytes free; the snapshot takes {size}")
