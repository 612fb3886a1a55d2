"""Makes a snapshot of a cut. After every step, readers of DEST still see all earlier snapshots.

1. Write the segment files that DEST lacks, each under its final name only when complete: linked
   where possible, copied or uploaded otherwise. Of a segment that has grown since the last
   snapshot, only the new range is written.
2. Publish the manifest, which makes the snapshot exist.
3. Delete the files that no manifest needs, including those of interrupted commands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from quafka_broker.snapshots.catalog import collect_garbage, expired, load_all, remove_manifest
from quafka_broker.snapshots.cut import Cut
from quafka_broker.snapshots.cut_files import CutFiles, OrgCutFiles, OrgEntries
from quafka_broker.snapshots.destination import Destination, Lock
from quafka_broker.snapshots.repack import Repack
from quafka_broker.wal.cut import SegmentCut
from quafka_loop import clock
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    encode_file_header,
)
from quafka_proto.snapshot_format import (
    SEGMENTS,
    SegmentPiece,
    SnapshotManifest,
    SnapshotSegment,
    encode_manifest,
    manifest_path,
    new_snapshot_id,
)
from quafka_proto.zone_format import ZoneBuilder, encode_zones

_MAX_PIECES = 16  # of one segment; a segment with more is rewritten as one piece
_ROWS_PER_READ = 8192

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""


class SnapshotError(Exception):
    """No snapshot was made. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Created:
    """A new snapshot and the work that it took.

    Attributes:
        written: bytes copied or uploaded.
        linked: files linked.
        reused: pieces that DEST already had.
    """

    manifest: SnapshotManifest
    written: int
    linked: int
    reused: int


class Creation:
    """Makes one snapshot."""

    def __init__(
        self,
        store: Destination,
        files: CutFiles,
        cut: Cut,
        *,
        org: int | None = None,
        lease_seconds: float | None = None,
        scheduled: bool = False,
        progress: Progress = lambda _done, _all: None,
        step: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """`step` is called before each change of DEST, with a description of it."""
        self._store = store
        self._files = files
        self._cut = cut
        self._org = org
        self._lease_seconds = lease_seconds
        self._scheduled = scheduled
        self._progress = progress
        self._step = step
        self._written = self._linked = self._reused = 0
        self._done = self._done_in_segment = 0
        self._all = sum(segment.end for segment in cut.segments)
        self._present: dict[str, int] = {}

    def run(self, lock: Lock) -> Created:
        """Make the snapshot. The caller holds the lock of DEST.

        Raises:
            SnapshotError: DEST has the snapshots of another log.
            OSError, Malformed: DEST fails, or the cut's files cannot be read.
        """
        before = load_all(self._store)
        for manifest in before:
            if manifest.cluster_id != self._cut.manifest.cluster_id:
                raise SnapshotError(
                    f"it has snapshots of another log, {manifest.cluster_id}: "
                    "each log needs a DEST of its own"
                )
        self._present = dict(self._store.list_objects(SEGMENTS))
        segments: list[SnapshotSegment] = []
        pieces: list[SegmentPiece] = []
        for cut in self._cut.segments:
            segment, some = self._segment(cut, before)
            segments.append(segment)
            pieces += some
        manifest = self._manifest(before, segments, pieces)
        lock.check()
        self._step("publish")
        self._store.publish(manifest_path(manifest.id), encode_manifest(manifest))
        lock.check()
        left = [old for old in before if not expired(old)]
        for old in before:
            if expired(old):
                self._step("expire")
                remove_manifest(self._store, old.id)
        self._step("collect")
        collect_garbage(self._store, lock, [*left, manifest])
        return Created(manifest, self._written, self._linked, self._reused)

    def _manifest(
        self,
        before: list[SnapshotManifest],
        segments: list[SnapshotSegment],
        pieces: list[SegmentPiece],
    ) -> SnapshotManifest:
        about = self._cut.manifest
        # Ids grow even after all snapshots have been dropped.
        number = max([about.cut_ms // 1000, *(int(old.id.split("-")[0]) + 1 for old in before)])
        topics, groups = about.topics, about.groups
        if self._org is not None:
            topics = [topic for topic in topics if topic.org == self._org]
            groups = [group for group in groups if group.org == self._org]
        lease = self._lease_seconds
        until = None if lease is None else clock.time_ns() // 1_000_000 + int(lease * 1000)
        return replace(
            about,
            id=new_snapshot_id(number, about.cut_ms),
            org=self._org,
            lease_until_ms=until,
            segments=segments,
            pieces=pieces,
            topics=topics,
            groups=groups,
            scheduled=self._scheduled,
        )

    # --- segments -----------------------------------------------------------------------------

    def _segment(
        self, cut: SegmentCut, before: list[SnapshotManifest]
    ) -> tuple[SnapshotSegment, list[SegmentPiece]]:
        """A segment at the cut, with the pieces that DEST has and a new one for the rest."""
        known, pieces = self._known(cut, before)
        self._reused += len(pieces)
        if known is None or known.position < cut.end:
            range_ = _Range(cut, known.position, known.rows) if known else _Range(cut, 0, 0)
            if self._org is None:
                pieces = [*pieces, self._raw(range_)]
            else:
                pieces = [*pieces, *self._repacked(range_, self._org)]
        self._done += cut.end - self._done_in_segment
        self._done_in_segment = 0
        self._progress(self._done, self._all)
        return SnapshotSegment(
            cut.number, cut.salt, cut.end, cut.rows, self._tail(cut, cut.rows)
        ), pieces

    def _known(
        self, cut: SegmentCut, before: list[SnapshotManifest]
    ) -> tuple[SnapshotSegment | None, list[SegmentPiece]]:
        """The segment in the newest snapshot that has it, and its pieces."""
        for manifest in reversed(before):
            for known in manifest.segments if manifest.org == self._org else ():
                if (known.number, known.salt) == (cut.number, cut.salt):
                    pieces = [
                        p
                        for p in manifest.pieces
                        if (p.number, p.salt) == (known.number, known.salt)
                    ]
                    return (known, pieces) if self._goes_on(cut, known, pieces) else (None, [])
        return None, []

    def _goes_on(self, cut: SegmentCut, known: SnapshotSegment, pieces: list[SegmentPiece]) -> bool:
        """Whether the cut's segment continues the known one."""
        if known.position > cut.end or known.rows > cut.rows:
            return False
        if known.position < cut.end and len(pieces) >= _MAX_PIECES:
            return False
        files = {path for piece in pieces for path in (piece.log, piece.index, piece.zones)}
        return files <= self._present.keys() and self._tail(cut, known.rows) == known.tail

    def _tail(self, cut: SegmentCut, rows: int) -> str:
        return self._files.tail(cut.number, rows).hex()

    def _raw(self, part: _Range) -> SegmentPiece:
        cut = part.segment
        stem = f"{self._stem(cut)}-{part.position}-{cut.end}"
        log, log_offset = f"{self._stem(cut)}.log", part.position
        if not self._link(self._files.log_path(cut.number), log):
            log, log_offset = f"{stem}.log", 0
            size = cut.end - part.position
            self._put(log, size, self._files.log_chunks(cut.number, part.position, size))
        index, index_offset = f"{self._stem(cut)}.oidx", part.rows_at
        linked = cut.sealed and self._link(self._files.index_path(cut.number), index)
        if not linked:
            index, index_offset = f"{stem}.oidx", 0
            self._put(index, INDEX_ROW_SIZE * part.rows, self._rows(part))
        zones = f"{stem}.zones"
        ready = self._files.zones(cut) if cut.sealed and not part.first_row else None
        if ready is None or not self._link(self._files.zones_path(cut), zones):
            self._zones(zones, self._rows(part), part.rows, ready)
        return SegmentPiece(
            cut.number, cut.salt, part.position, cut.end - part.position, log, log_offset,
            index, index_offset, part.rows, zones,
        )  # fmt: skip

    def _repacked(self, part: _Range, org: int) -> list[SegmentPiece]:
        cut, files = part.segment, self._files
        if isinstance(files, OrgCutFiles):
            found: OrgEntries = files.org_entries(cut, part.first_row)
        else:
            found = Repack(files, cut, org, part.first_row)
        with closing(found):
            return [] if found.is_empty else [self._put_repacked(part, org, found)]

    def _put_repacked(self, part: _Range, org: int, found: OrgEntries) -> SegmentPiece:
        cut = part.segment
        stem = f"{self._stem(cut)}-{part.position}-{cut.end}-org{org}"
        self._put(f"{stem}.log", found.expected_size, found.log())
        self._put(f"{stem}.oidx", INDEX_ROW_SIZE * found.rows, found.index())
        self._zones(f"{stem}.zones", found.index(), found.rows)
        return SegmentPiece(
            cut.number, cut.salt, 0, found.size, f"{stem}.log", 0, f"{stem}.oidx", 0,
            found.rows, f"{stem}.zones",
        )  # fmt: skip

    def _stem(self, cut: SegmentCut) -> str:
        """The prefix of the names of a segment's files, which is unique to the segment."""
        header = encode_file_header(LOG_MAGIC, cut.number, cut.salt, cut.kind)
        cluster = self._cut.manifest.cluster_id.encode()
        return f"{SEGMENTS}/{cut.number:012d}-{hashlib.sha256(cluster + header).hexdigest()[:16]}"

    def _rows(self, part: _Range) -> Iterator[bytes]:
        """The index rows of a range, in chunks that fit into memory."""
        at, end = part.rows_at, part.rows_at + INDEX_ROW_SIZE * part.rows
        while at < end:
            size = min(_ROWS_PER_READ * INDEX_ROW_SIZE, end - at)
            yield self._files.index(part.segment.number, at, size)
            at += size

    # --- files --------------------------------------------------------------------------------

    def _link(self, file: Path | None, path: str) -> bool:
        if file is None:
            return False
        self._step(f"link {path}")
        if not self._store.link(file, path):
            return False
        self._linked += 1
        return True

    def _put(self, path: str, size: int | None, data: Iterable[bytes]) -> None:
        """Write a file, unless its size shows that an interrupted command has written it."""
        if size is not None and self._present.get(path) == size:
            return
        self._step(f"write {path}")
        self._store.write(path, self._counted(data))

    def _zones(
        self, path: str, rows: Iterable[bytes], count: int, ready: bytes | None = None
    ) -> None:
        """Write a zones file: the `ready` one, or one made from the rows."""
        if path in self._present:
            return
        if ready is None:
            builder = ZoneBuilder()
            for some in rows:
                builder.add(some)
            zones = builder.zones()
            assert sum(zone.batches for zone in zones) == count
            ready = encode_zones(zones)
        self._step(f"write {path}")
        self._store.write(path, self._counted([ready]))

    def _counted(self, data: Iterable[bytes]) -> Iterator[bytes]:
        for some in data:
            self._written += len(some)
            self._done_in_segment += len(some)
            self._progress(min(self._all, self._done + self._done_in_segment), self._all)
            yield some


@dataclass(frozen=True, slots=True)
class _Range:
    """The part of a segment that DEST lacks, from a position and a row on."""

    segment: SegmentCut
    position: int
    first_row: int

    @property
    def rows(self) -> int:
        return self.segment.rows - self.first_row

    @property
    def rows_at(self) -> int:
        """The position of the first row in the index file."""
        return FILE_HEADER_SIZE + INDEX_ROW_SIZE * self.first_row
