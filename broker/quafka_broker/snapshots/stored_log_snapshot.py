"""Snapshots of a log in an object store, kept below the same prefix. They name its objects.

A snapshot is a view of each shard with everything that was in the chain when the snapshot began:
the shard's owner writes one regularly, and a last one when it stops. Without an owner, it is the
newest view. Only the records that are not in a segment's object yet are copied, from small objects
of the chain to one file per segment. The other objects are pinned:
the owner of a shard deletes no file that a snapshot names (`PinnedObjects`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from quafka_broker.snapshots.catalog import (
    collect_garbage,
    expired,
    load,
    load_all,
    remove_manifest,
    snapshot_ids,
)
from quafka_broker.snapshots.create import Created, SnapshotError
from quafka_broker.snapshots.destination import Destination, Lock
from quafka_loop import clock, threads
from quafka_objects.chain_tail import ChainGapError, ChainTail, TailObject
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import (
    HEADER_SIZE,
    MANIFESTS,
    ShardManifest,
    decode_manifest,
    manifest_path,
)
from quafka_proto.log_format import (
    APPENDED,
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    decode_row,
    encode_file_header,
)
from quafka_proto.snapshot_format import (
    SEGMENTS,
    SHARD_BITS,
    SegmentPiece,
    SnapshotManifest,
    SnapshotSegment,
    encode_manifest,
    merged_topics,
    new_snapshot_id,
)
from quafka_proto.snapshot_format import manifest_path as snapshot_path
from quafka_proto.view_format import View, decode_view
from quafka_proto.zone_format import encode_zones, zones_of

_READERS = 16
_ATTEMPTS = 5
_PAUSE = 0.5
_CHUNK = 8 << 20


_TURN = 0.5
_SILENT_TURNS = 16  # more than a lease
_LONGEST_TURNS = 240


class _Shard(NamedTuple):
    """A shard's view, and the chain up to the view's cut.

    Attributes:
        end_id: the global id after the last record of the chain.
        manifest: as it was read before.
    """

    view: View
    tail: list[TailObject]
    end_id: int
    manifest: ShardManifest


def has_log(store: ObjectStore) -> bool:
    """Whether a log is kept below this prefix."""
    return bool(_shards(store))


def snapshot_in_store(
    store: Destination, lock: Lock, *, lease_seconds: float | None = None
) -> Created:
    """Make a snapshot of the log below the same prefix. The caller holds the lock.

    Raises:
        SnapshotError: a shard has no view, or one that is too old.
        OSError, Malformed: the store fails, or an object is damaged.
    """
    before = load_all(store)
    cut_ms = clock.time_ns() // 1_000_000  # what was acknowledged until now is in the snapshot
    first = [_read(store, number) for number in _shards(store)]
    shards = [_awaited(store, shard) for shard in first]
    written = 0
    pieces: list[SegmentPiece] = []
    for view, tail, _, _ in shards:
        some = [*view.manifest.pieces]
        for _, objects in groupby(tail, key=lambda one: one.header.segment):
            piece = _pack(store, list(objects))
            written += piece.length + INDEX_ROW_SIZE * piece.rows
            some.append(piece)
        above = view.shard << SHARD_BITS
        pieces += [replace(piece, number=above | piece.number) for piece in some]
    pieces.sort(key=lambda piece: (piece.number, piece.position))
    about = shards[0].view.manifest
    number = max([cut_ms // 1000, *(int(old.id.split("-")[0]) + 1 for old in before)])
    until = None
    if lease_seconds is not None:
        until = clock.time_ns() // 1_000_000 + int(lease_seconds * 1000)
    manifest = replace(
        about,
        id=new_snapshot_id(number, cut_ms),
        cut_ms=cut_ms,
        end_id=max(shard.view.manifest.end_id for shard in shards),
        lease_until_ms=until,
        pieces=pieces,
        segments=[_segment(list(some)) for _, some in groupby(pieces, key=lambda one: one.number)],
        topics=merged_topics(topic for shard in shards for topic in shard.view.manifest.topics),
        groups=[group for shard in shards for group in shard.view.manifest.groups],
        shards=len(shards),
    )
    lock.check()
    store.publish(snapshot_path(manifest.id), encode_manifest(manifest))
    lock.check()
    for old in before:
        if expired(old):
            remove_manifest(store, old.id)
    collect_garbage(store, lock, [*(old for old in before if not expired(old)), manifest])
    return Created(manifest, written, 0, sum(len(shard.view.manifest.pieces) for shard in shards))


class PinnedObjects:
    """The objects of logs below a prefix that its snapshots need.

    A manifest never changes, so each is read once.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, SnapshotManifest] = {}

    def read(self) -> set[str]:
        """Read their present paths. Blocks. Raises OSError, Malformed."""
        found: dict[str, SnapshotManifest] = {}
        for snapshot_id in snapshot_ids(self._store):
            with suppress(FileNotFoundError):  # dropped meanwhile
                known = self._known.get(snapshot_id)
                found[snapshot_id] = known or _pins(load(self._store, snapshot_id))
        self._known = found
        kept = [manifest for manifest in found.values() if not expired(manifest)]
        paths = {path for manifest in kept for path in manifest.files()}
        return {path for path in paths if not path.startswith(f"{SEGMENTS}/")}


def _pins(manifest: SnapshotManifest) -> SnapshotManifest:
    """Drop the parts of a manifest that pin nothing: it may have many topics."""
    return replace(manifest, topics=[], groups=[], segments=[])


def _shards(store: ObjectStore) -> list[int]:
    names = (found.path.rpartition("/")[2] for found in store.list_objects(MANIFESTS))
    return [int(name) for name in names if name.isdecimal()]


def _read(store: ObjectStore, shard: int) -> _Shard:
    """Read the newest view of a shard, and the chain that belongs to it."""
    gap = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            clock.sleep(_PAUSE)
        manifest = decode_manifest(store.read(manifest_path(shard)), shard)
        if not manifest.view:
            gap = "a broker writes the first one when it has started"
            continue
        try:
            view = decode_view(store.read(manifest.view), shard)
            with threads.ThreadPoolExecutor(_READERS) as readers:
                tail = ChainTail(store, shard).read(
                    view.chain_from, manifest.chain_start, view.covered(), readers
                )
        except (ChainGapError, ObjectNotFoundError) as e:
            gap = str(e)
            continue
        return _shard(view, tail, manifest)
    raise SnapshotError(f"shard {shard} has no view of its log that can be used: {gap}")


def _shard(view: View, tail: list[TailObject], manifest: ShardManifest) -> _Shard:
    cut_id = view.manifest.end_id
    end_id = max([cut_id, *(_end_id(one) for one in tail[-1:])])
    return _Shard(view, [one for one in tail if _end_id(one) <= cut_id], end_id, manifest)


def _awaited(store: ObjectStore, first: _Shard) -> _Shard:
    """The shard with a view up to the end that it had, if there is an owner who writes one."""
    found, latest = first, first.manifest
    silent = 0
    for _ in range(_LONGEST_TURNS):
        if found.view.manifest.end_id >= first.end_id or not latest.owner or silent > _SILENT_TURNS:
            break
        clock.sleep(_TURN)
        before, latest = (
            latest,
            decode_manifest(store.read(manifest_path(latest.shard)), latest.shard),
        )
        silent = silent + 1 if latest.nonce == before.nonce else 0
        if latest.view != found.manifest.view:
            found = _read(store, latest.shard)
    return found


def _end_id(tail: TailObject) -> int:
    """The global id after the last record of an object."""
    rows = (decode_row(tail.rows, at) for at in range(0, len(tail.rows), INDEX_ROW_SIZE))
    return max(row.global_id + row.record_count for row in rows)


def _segment(pieces: Sequence[SegmentPiece]) -> SnapshotSegment:
    last = pieces[-1]
    rows = sum(piece.rows for piece in pieces)
    return SnapshotSegment(last.number, last.salt, last.position + last.length, rows, "")


def _pack(store: Destination, objects: Sequence[TailObject]) -> SegmentPiece:
    """Write a segment, or its end, from objects of the chain to files of the snapshot."""
    first, last = objects[0].header, objects[-1].header
    start = first.position if first.position > FILE_HEADER_SIZE else 0
    stem = f"{SEGMENTS}/{first.segment:012d}-{os.urandom(8).hex()}"
    rows = b"".join(each.rows for each in objects)
    # Uses a file: a bucket's client must not read one object while it puts another.
    with tempfile.TemporaryFile() as copy:
        copy.writelines(_entries(store, objects))
        copy.seek(0)
        store.write(f"{stem}.log", iter(lambda: copy.read(_CHUNK), b""))
    store.write(f"{stem}.oidx", [rows])
    store.write(f"{stem}.zones", [encode_zones(zones_of(rows))])
    return SegmentPiece(
        first.segment, first.salt, start, last.position + last.length - start, f"{stem}.log", 0,
        f"{stem}.oidx", 0, len(rows) // INDEX_ROW_SIZE, f"{stem}.zones",
    )  # fmt: skip


def _entries(store: ObjectStore, objects: Sequence[TailObject]) -> Iterator[bytes]:
    header = objects[0].header
    if header.position == FILE_HEADER_SIZE:
        yield encode_file_header(LOG_MAGIC, header.segment, header.salt, APPENDED)
    for each in objects:
        yield store.read(each.path, HEADER_SIZE, each.header.length)
