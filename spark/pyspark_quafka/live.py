"""The live log in an object store as a snapshot: what exists at the moment of reading.

For each shard: the manifest, its view, and the chain from there up to the first hole
(`quafka_proto.view_format`). So the cut is a prefix of each shard's log, consistent over all topics
in it. Shards are read one after the other, at most as far apart as the requests take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pyspark_quafka.errors import QuafkaError, SnapshotNotFoundError
from pyspark_quafka.index_rows import ZONES, Keys, Rows, keys_of, rows_in
from pyspark_quafka.snapshot import Snapshot, Zones
from quafka_loop import clock, threads
from quafka_objects.chain_tail import ChainGapError, ChainTail, TailObject
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import HEADER_SIZE, MANIFESTS, decode_manifest, manifest_path
from quafka_proto.errors import Malformed
from quafka_proto.log_format import ROW_TRANSACTIONAL
from quafka_proto.snapshot_format import (
    SegmentPiece,
    SnapshotGroup,
    SnapshotManifest,
    SnapshotPartition,
    SnapshotTopic,
    is_snapshot_id,
    merged_topics,
    new_snapshot_id,
)
from quafka_proto.view_format import View, decode_view
from quafka_proto.zone_format import check_zones, encode_zones, zones_of

_READERS = 32
_ATTEMPTS = 5
_PAUSE = 0.2


class LiveSnapshot(Snapshot):
    """One cut of the live log. The zones of chain objects are in memory."""

    def __init__(
        self,
        store: ObjectStore,
        manifest: SnapshotManifest,
        tail: dict[str, Zones],
        known: dict[str, Zones],
    ) -> None:
        """`known`: zones of segments that were read before; it gets those that this one reads."""
        super().__init__(store, manifest)
        self._tail = tail
        self._known = known

    def _zones(self, path: str) -> Zones:
        if path in self._tail:
            return self._tail[path]
        if path not in self._known:
            self._known[path] = super()._zones(path)
        return self._known[path]


class LiveLog:
    """Reads the log again and again; what does not change is read once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._shards: dict[int, _Shard] = {}
        self._known: dict[str, Zones] = {}
        self._kept: dict[str, LiveSnapshot] = {}
        self._last = 0

    def ids(self) -> list[str]:
        """A live log has no older snapshots to go back to."""
        return []

    def open(self, as_of: str = "latest", org: int | None = None) -> LiveSnapshot:
        """The log as it is now, or as `open` has returned it under an id, if not long ago."""
        del org  # a live log has the records of all orgs
        if is_snapshot_id(as_of) and as_of in self._kept:
            return self._kept[as_of]
        found = self._read()
        if is_snapshot_id(as_of) and as_of > found.id:
            return found
        self._kept[found.id] = found
        for old in list(self._kept)[1:-2]:  # a query may have to end at the first one
            del self._kept[old]
        return found

    def _read(self) -> LiveSnapshot:
        numbers = shards_of(self._store)
        with threads.ThreadPoolExecutor(_READERS) as readers:
            parts = [self._shard(number).read(readers) for number in numbers]
        views = [view for view, _ in parts if view is not None]
        if not views:
            raise SnapshotNotFoundError(
                f"{self._store.where} has no view of the log yet: a broker writes one when it has "
                "started"
            )
        pieces: list[SegmentPiece] = []
        zones: dict[str, Zones] = {}
        topics: list[SnapshotTopic] = []
        groups: list[SnapshotGroup] = []
        for view, tail in parts:
            if view is not None:
                pieces += view.manifest.pieces
                groups += view.manifest.groups
                topics += _with_tail(view.manifest.topics, tail)
                for each in tail:
                    pieces.append(_piece(each))
                    zones[each.path] = _zones(each)
        now_ms = self._last = max(clock.time_ns() // 1_000_000, self._last + 1)
        manifest = replace(
            views[0].manifest,
            id=new_snapshot_id(now_ms, now_ms),
            cut_ms=now_ms,
            pieces=pieces,
            topics=merged_topics(topics),
            groups=groups,
        )
        wanted = {piece.zones for piece in pieces}
        for path in self._known.keys() - wanted:
            del self._known[path]
        return LiveSnapshot(self._store, manifest, zones, self._known)

    def _shard(self, number: int) -> _Shard:
        if number not in self._shards:
            self._shards[number] = _Shard(self._store, number)
        return self._shards[number]


def shards_of(store: ObjectStore) -> list[int]:
    """The shards whose log is in this store; none: it is the folder of snapshots, or empty."""
    names = (found.path.rpartition("/")[2] for found in store.list_objects(MANIFESTS))
    return [int(name) for name in names if name.isdecimal()]


class _Shard:
    """One shard, and what is known of it."""

    def __init__(self, store: ObjectStore, number: int) -> None:
        self._store = store
        self._number = number
        self._path = ""
        self._view: View | None = None
        self._tails: ChainTail | None = None

    def read(self, readers: threads.ThreadPoolExecutor) -> tuple[View | None, list[TailObject]]:
        """The newest view, and the chain after it; no view: nothing is known of the shard yet.

        Raises:
            QuafkaError: an object is damaged, or the view is too old to be continued.
        """
        tails = self._tails = self._tails or ChainTail(self._store, self._number)
        gap: Exception | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                clock.sleep(_PAUSE)
            try:
                manifest = decode_manifest(
                    self._store.read(manifest_path(self._number)), self._number
                )
                if not manifest.view:
                    return None, []
                if manifest.view != self._path:
                    self._view = decode_view(self._store.read(manifest.view), self._number)
                    self._path = manifest.view
                assert self._view is not None
                start, covered = self._view.chain_from, self._view.covered()
                return self._view, tails.read(start, manifest.chain_start, covered, readers)
            except Malformed as e:
                raise QuafkaError(f"shard {self._number} in {self._store.where}: {e}") from e
            except (ChainGapError, ObjectNotFoundError) as e:  # there is a newer view by now
                gap = e
        raise QuafkaError(
            f"shard {self._number} in {self._store.where}: the view {self._path} is too old: "
            f"{gap}; does its broker run?"
        )


# --- the chain as pieces ------------------------------------------------------------------------


def _piece(tail: TailObject) -> SegmentPiece:
    header, path = tail.header, tail.path
    return SegmentPiece(
        header.segment, header.salt, header.position, header.length, path, HEADER_SIZE,
        path, header.rows_at, header.entries, path,
    )  # fmt: skip


def _zones(tail: TailObject) -> Zones:
    try:
        return np.frombuffer(check_zones(encode_zones(zones_of(tail.rows))), ZONES)
    except Malformed as e:
        raise QuafkaError(f"{tail.path}: {e}") from e


# --- what the chain adds to partitions ------------------------------------------------------------


def _with_tail(topics: Iterable[SnapshotTopic], tail: Sequence[TailObject]) -> list[SnapshotTopic]:
    """The topics with the high watermarks and last stable offsets at the end of the chain.

    The chain's rows show which batches are transactional, but not how their transactions end: from
    the first of them on, a partition is not stable until a view knows more.
    """
    if not tail:
        return list(topics)
    rows = rows_in(b"".join(each.rows for each in tail))
    keys = keys_of(rows)
    order = np.argsort(keys, kind="stable")
    rows, keys = rows[order], keys[order]
    return [
        replace(topic, partitions=[_grown(topic, each, rows, keys) for each in topic.partitions])
        for topic in topics
    ]


def _grown(
    topic: SnapshotTopic, partition: SnapshotPartition, rows: Rows, keys: Keys
) -> SnapshotPartition:
    numbers = (topic.org, partition.partition, topic.generation)
    key = bytes.fromhex(topic.topic_hash) + b"".join(n.to_bytes(4, "big") for n in numbers)
    mine = rows[
        np.searchsorted(keys, np.bytes_(key)) : np.searchsorted(keys, np.bytes_(key), "right")
    ]
    if not len(mine):
        return partition
    base = mine["base_offset"].astype(np.int64)
    end = max(partition.high_watermark, int((base + mine["record_count"]).max()))
    unstable = base[(mine["flags"] & ROW_TRANSACTIONAL != 0) & (base >= partition.high_watermark)]
    stable = min(end, int(unstable.min())) if len(unstable) else end
    if partition.last_stable_offset < partition.high_watermark:
        stable = partition.last_stable_offset
    return replace(partition, high_watermark=end, last_stable_offset=stable)
