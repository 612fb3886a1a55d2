"""Writes the views of a shard in an object store, which Spark reads together with the chain.

A view names the objects of the segments and copies nothing (`quafka_proto.view_format`). It is made
from a manifest that was read before the cut: the records of the cut are in that manifest's files,
or in the chain from its `tail_start` on. Both exist for a grace period after the next view.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Protocol

from quafka_broker.chain.collect import GRACE_S
from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.segment_parts import parts_in
from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.cut import WHOLE_LOG, Cut, take_cut
from quafka_broker.state import BrokerState
from quafka_broker.wal.segment import log_name
from quafka_loop import clock
from quafka_objects.store import ObjectStore
from quafka_proto import chain_format
from quafka_proto.chain_format import StoredFile, decode_directory, header_in_path
from quafka_proto.errors import Malformed
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_ROW_SIZE
from quafka_proto.snapshot_format import SegmentPiece, new_snapshot_id
from quafka_proto.view_format import (
    View,
    encode_view,
    view_path,
    views_folder,
    zones_folder,
    zones_path,
)
from quafka_proto.zone_format import ZoneBuilder, encode_zones

log = logging.getLogger("quafka.broker.views")

_TURN_S = 1.0
_PAUSE_S = 10.0  # after a failure
_SHARE = 5.0
"""A view waits for at least this multiple of the time that the last one took."""
_ROWS_PER_READ = 8_192
_LOG, _INDEX = ".log", ".oidx"


class OwnedChain(Protocol):
    """The manifest of the shard that this broker owns; a `Chain` is one."""

    @property
    def manifest(self) -> chain_format.ShardManifest: ...

    async def update(
        self, change: Callable[[chain_format.ShardManifest], chain_format.ShardManifest]
    ) -> chain_format.ShardManifest:
        """Change the manifest. Raises FencedError."""
        ...


class Views:
    """The views of one shard. One task runs it once the log is open."""

    def __init__(
        self,
        state: BrokerState,
        chain: OwnedChain,
        store: ObjectStore,
        interval_s: float,
        pinned: Callable[[], Collection[str]] = tuple,
        grace_s: float = GRACE_S,
    ) -> None:
        """`pinned`: reads the paths that snapshots need, in a thread."""
        self._state = state
        self._chain = chain
        self._store = store
        self._interval_s = interval_s
        self._pinned = pinned
        self._grace_s = grace_s
        self._number = 0
        self._seen = (-1, -1)
        self._at = self._took = 0.0
        self._zones: set[str] | None = None
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Write a view when topics have changed, otherwise once per interval if there is news."""
        while True:
            if self._is_due(clock.monotonic()):
                try:
                    await self.write()
                except FencedError:
                    return
                except (OSError, StorageError, Malformed) as e:
                    log.warning("no view of the log is written for now: %s", e)
                    await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(_TURN_S)

    def _is_due(self, now: float) -> bool:
        changes, end_id = self._news()
        if now - self._at < _SHARE * self._took:
            return False
        if changes != self._seen[0]:
            return True
        return end_id != self._seen[1] and now - self._at >= self._interval_s

    def _news(self) -> tuple[int, int]:
        return self._state.registry.changes, self._state.log.next_id

    async def write_news(self) -> None:
        """`write`, if anything has changed since the last view."""
        if self._news() != self._seen:
            await self.write()

    async def write(self) -> View:
        """Write a view of the present log, and name it in the manifest.

        Raises:
            FencedError: the shard has another owner.
            OSError, StorageError, Malformed: the store or the log fails.
        """
        begun = clock.monotonic()
        news, manifest = self._news(), self._chain.manifest
        pieces = await asyncio.to_thread(self._pieces, manifest)
        cuts: list[Cut] = []
        await take_cut(self._state, WHOLE_LOG, cuts.append)
        [cut] = cuts
        self._number += 1
        path = view_path(manifest.shard, manifest.epoch, self._number)
        snapshot = replace(
            cut.manifest,
            id=new_snapshot_id(cut.manifest.cut_ms // 1_000, cut.manifest.cut_ms),
            pieces=pieces,
        )
        chain_from = max(manifest.chain_start, manifest.tail_start)
        view = View(manifest.shard, chain_from, snapshot)
        await asyncio.to_thread(lambda: self._store.put(path, encode_view(view)))
        await self._chain.update(lambda now: replace(now, view=path))
        self._seen, self._at = news, clock.monotonic()
        self._took = self._at - begun
        needed = {path, *(piece.zones for piece in pieces)}
        await asyncio.to_thread(self._collect, manifest.shard, needed, self._at)
        return view

    # --- in a thread --------------------------------------------------------------------------

    def _pieces(self, manifest: chain_format.ShardManifest) -> list[SegmentPiece]:
        """A piece for each segment that is an object, with its zones."""
        if not manifest.directory:
            return []
        files = decode_directory(self._store.read(manifest.directory))
        if self._zones is None:
            found = self._store.list_objects(zones_folder(manifest.shard))
            self._zones = {each.path for each in found}
        return list(self._each(files, manifest.shard, self._zones))

    def _each(self, files: list[StoredFile], shard: int, known: set[str]) -> Iterator[SegmentPiece]:
        for number, start, log_file, index, begin in _segments(files):
            header = header_in_path(log_file.path)
            rows = (index.size - begin) // INDEX_ROW_SIZE
            if rows <= 0 or header is None:
                continue
            zones = zones_path(shard, log_file.path)
            if zones not in known:
                self._make_zones(zones, index.path, begin, rows)
                known.add(zones)
            yield SegmentPiece(
                number, header.salt, start, log_file.size, log_file.path, 0, index.path, begin,
                rows, zones,
            )  # fmt: skip

    def _make_zones(self, path: str, index: str, begin: int, rows: int) -> None:
        builder = ZoneBuilder()
        end = begin + INDEX_ROW_SIZE * rows
        for at in range(begin, end, INDEX_ROW_SIZE * _ROWS_PER_READ):
            size = min(INDEX_ROW_SIZE * _ROWS_PER_READ, end - at)
            builder.add(self._store.read(index, at, size))
        self._store.put(path, encode_zones(builder.zones()))

    def _collect(self, shard: int, needed: set[str], now: float) -> None:
        """Delete older views, and zones of removed segments, after the grace period."""
        zones = self._zones or set()
        needed = {*needed, *self._pinned()}
        views = (found.path for found in self._store.list_objects(views_folder(shard)))
        unneeded = {*views, *zones} - needed
        self._since = {path: self._since.get(path, now) for path in sorted(unneeded)}
        for path, since in self._since.items():
            if now - since >= self._grace_s:
                self._store.delete(path)
                zones.discard(path)


def _segments(
    files: Collection[StoredFile],
) -> Iterator[tuple[int, int, StoredFile, StoredFile, int]]:
    """Segments and parts: number, position, log, index, and the position of the first row in it."""
    named = {file.name: file for file in files}
    for name, file in named.items():
        stem, ending = name[: -len(_LOG)], name[-len(_LOG) :]
        index = named.get(stem + _INDEX)
        if ending == _LOG and stem.isdecimal() and index is not None:
            yield int(stem), 0, file, index, FILE_HEADER_SIZE
    for number, parts in parts_in(files).items():
        if log_name(number) not in named:
            for part in parts:
                yield number, part.start, part.log, part.rows, 0 if part.start else FILE_HEADER_SIZE
