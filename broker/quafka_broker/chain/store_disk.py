"""The folder of a log over an object store: a `Disk` whose local files are a copy.

The folder's names are the list of files that the shard's manifest names; `sync_names` is a compare
and swap of the manifest. A file is an object, which never changes. Local files are a cache, except
for the active segment and sealed ones that are not uploaded yet, whose entries are in the chain. So
local files are never fsynced, and no record is lost with them.

A sealed segment is uploaded in the background (`uploads`); then the chain begins at the next
segment, and the local copy may be removed. Methods may block, and must not be called on the event
loop that the chain uses: `sync_names` waits for it.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from quafka_broker.chain.block_cache import BlockCache
from quafka_broker.chain.chained_segments import ChainedSegments
from quafka_broker.chain.file_objects import FileObjects, segment_number
from quafka_broker.chain.local_copies import LocalCopies
from quafka_broker.chain.object_reader import ObjectReader, StoredRange
from quafka_broker.chain.owned_shard import OwnedShard
from quafka_broker.chain.patience import Patience
from quafka_broker.chain.segment_parts import Part, SegmentParts, merged, rows_below
from quafka_broker.chain.store_file import NO_ROOM, Node, StoreFile
from quafka_broker.wal.disk import TEMPORARY, File, RealDisk
from quafka_broker.wal.segment import index_name, log_name
from quafka_loop import threads
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import (
    Manifest,
    StoredFile,
    part_name,
    part_of,
)

log = logging.getLogger("quafka.broker.store")

BLOCKS = "blocks"
_FETCHED = 64 << 20
_SWAP_SECONDS = 2.0  # of an attempt; a stopping broker waits for the one under way

T = TypeVar("T")


class DiskFigures(NamedTuple):
    """The use of one folder.

    Attributes:
        waiting: files of sealed segments that are not objects yet.
        waiting_bytes: the bytes of these files; the chain has them, too.
        copies, blocks: bytes of the cache: files that were written here, and blocks that were read.
    """

    waiting: int = 0
    waiting_bytes: int = 0
    copies: int = 0
    blocks: int = 0


class StoreDisk:
    """One shard's folder. See `wal.disk.Disk`."""

    def __init__(
        self,
        store: ObjectStore,
        shard: OwnedShard,
        folder: Path,
        cache_bytes: int,
        files: Iterable[StoredFile] = (),
        patience: Patience | None = None,
    ) -> None:
        """`files`: the list that the manifest names. `folder`: empty, and for this disk alone.

        Raises:
            OSError: the folder cannot be used.
        """
        self._shard = shard
        self._folder = folder
        self._local = RealDisk(folder)
        self.patience = patience or Patience()
        self._objects = FileObjects(store, shard.shard, shard.epoch, self.patience)
        self.cache = BlockCache(folder / BLOCKS, cache_bytes)
        self.reader = ObjectReader(store, self.cache, self.patience)
        self._copies = LocalCopies(self._local, self.cache, cache_bytes)
        # Guards the names; held while local files are named, never during a request.
        self._lock = threads.RLock()
        self._names = {
            file.name: Node(file.name, stored=file) for file in files if part_of(file.name) is None
        }
        self._segments = ChainedSegments()
        self._ticks = itertools.count(1)
        # Numbers of changes of the list: the last change, the last one of each thread, and the last
        # one that the manifest has.
        self._version = self._committed = 0
        self._mine = threads.local()
        self._committing = threads.Lock()
        self.on_sealed: Callable[[], None] = lambda: None
        """Called when a segment has been sealed; see `sealed`."""

    def close(self) -> None:
        """End all requests, and remove the folder for good. The log must be closed."""
        self.patience.end_within(0.0)
        self.reader.close()
        self.cache.close()
        with self._lock:
            for node in self._names.values():
                if node.local is not None:
                    node.local.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- Disk ---------------------------------------------------------------------------------

    def create(self, name: str) -> File:
        with self._lock:
            if name in self._names:
                raise FileExistsError(name)
            node = Node(name, self.with_room(lambda: self._local.create(name)))
            number = segment_number(name)
            if number is not None:
                node.chained = True
                if name == log_name(number):
                    self._segments.add(number, self._shard.next_seq)
            self._names[name] = node
        return StoreFile(self, node)

    def open(self, name: str) -> File:
        with self._lock:
            return StoreFile(self, self._node(name))

    def allocate(self, name: str, size: int) -> None:
        with self._lock:
            self.with_room(lambda: self._local.allocate(name, size))
            if name not in self._names:
                node = self._names[name] = Node(name, self._local.open(name))
                node.kept_local = True

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._names)

    def exists(self, name: str) -> bool:
        return name in self._names

    def remove(self, name: str) -> None:
        with self._lock:
            node = self._node(name)
            del self._names[name]
            self._unname(node)
            if not (name.endswith(TEMPORARY) or node.kept_local):
                self._changed()

    def rename(self, name: str, to: str) -> None:
        with self._lock:
            node = self._node(name)
            before = self._names.get(to)
            if before is not None:
                self._unname(before)
            if node.local is not None:
                self._local.rename(name, to)
            del self._names[name]
            self._names[to] = node
            node.name = to
            node.chained = self._is_of_active(to)
            if node.stored is not None:
                node.save(node.stored._replace(name=to))
            self._changed()

    def sync_names(self) -> None:
        with self._lock:
            self._note_sealed()
            version: int = getattr(self._mine, "version", 0)
        if self._committed < version:
            with self._committing:
                if self._committed < version:
                    self._commit()

    def restore(self, number: int, first_seq: int, parts: SegmentParts) -> tuple[File, File]:
        """Create the files of a segment from its parts and from the chain, from this object on."""
        log, index = self.create(log_name(number)), self.create(index_name(number))
        with self._lock:
            self._segments.add(number, first_seq, parts)
        return log, index

    # --- files --------------------------------------------------------------------------------

    def change(self, node: Node) -> File:
        local = node.local
        if node.stored is None and local is not None:
            return local
        with self._lock:
            self._copies.forget(node)
            if node.local is None:
                assert node.stored is not None, "it is somewhere"
                node.local = self._localise(node, node.stored)
            if node.stored is not None:
                self._objects.settle([node.stored.path])
            node.stored = node.head = None
            return node.local

    def with_room(self, write: Callable[[], T]) -> T:
        while True:
            try:
                return write()
            except OSError as e:
                if e.errno not in NO_ROOM or not self.make_room():
                    raise

    def make_room(self) -> bool:
        """Free disk space of the cache; False if there is none."""
        with self._lock:
            made = self._copies.shrink() or self.cache.shrink()
        if made:
            log.warning("the local disk is full: the cache has been reduced")
        return made

    def save(self, node: Node) -> None:
        name = node.name
        if node.chained or node.kept_local or name is None or self._is_of_active(name):
            return
        if node.stored is None:
            self.upload(node)
            if not name.endswith(TEMPORARY):
                with self._lock:
                    self._changed()
        if not name.endswith(TEMPORARY):
            self.sync_names()

    def tick(self) -> int:
        return next(self._ticks)

    # --- objects ------------------------------------------------------------------------------

    def upload(self, node: Node) -> StoredFile:
        """Write a file, which must not change meanwhile, as an object.

        Raises:
            OSError: the file cannot be read, or the broker stops.
        """
        local, name = node.local, node.name
        assert local is not None, "it is local"
        assert name is not None, "it has a name"
        name = name.removesuffix(TEMPORARY)
        stored = self._objects.put(name, name, local, 0, local.size())
        if not node.chained:
            node.save(stored)
        return stored

    def sealed(self) -> list[tuple[int, list[Node]]]:
        """The sealed segments that are not objects yet, with their files, oldest first."""
        with self._lock:
            found: list[tuple[int, list[Node]]] = []
            for number in self._segments:
                nodes = [self._names.get(log_name(number)), self._names.get(index_name(number))]
                files = [node for node in nodes if node is not None and node.chained]
                if number < self._segments.sealed_below and files:
                    found.append((number, files))
            return found

    def figures(self) -> DiskFigures:
        """The files that wait to be uploaded, and the use of the cache."""
        files = [node for _, files in self.sealed() for node in files]
        waiting = sum(node.local.size() for node in files if node.local is not None)
        return DiskFigures(len(files), waiting, *self._copies.used)

    def uploaded(self, number: int, files: list[tuple[Node, StoredFile]]) -> None:
        """Name the objects of a sealed segment's files in the manifest, and free the chain.

        Files that have meanwhile been replaced, removed or changed are skipped.
        """
        with self._lock:
            if number >= self._segments.sealed_below:
                return
            for node, stored in files:
                same = self._names.get(stored.name) is node and node.local is not None
                if same and node.local is not None and node.local.size() == stored.size:
                    node.chained = False
                    node.save(stored)
                    self._changed()
                    if stored.name == log_name(number):
                        self._segments.drop_parts(number)
                else:
                    self._objects.settle([stored.path])
        self.sync_names()

    # --- parts of the active segment ------------------------------------------------------------

    def tail(self) -> tuple[int, int]:
        """See `ChainedSegments.tail`."""
        end = self._shard.durable
        with self._lock:
            return self._segments.tail(end)

    def save_tail(self) -> None:
        """Write the end of the active segment as an object, so that a takeover reads less.

        Raises:
            OSError: the broker stops, or was fenced.
        """
        end = self._shard.durable
        with self._lock:
            number = self._segments.sealed_below
            log, index = (self._names.get(name(number)) for name in (log_name, index_name))
            parts = self._segments.parts_of(number)
        if parts is None or log is None or index is None or not (log.chained and index.chained):
            return
        if end.segment != number or end.position <= parts.end:
            return
        assert log.local is not None, "it is appended to"
        assert index.local is not None, "it is appended to"
        kept, start, start_row = merged(parts.parts, end.position)
        end_row = rows_below(index.local, start_row, end.position)
        part = Part(
            self._put_part(log_name(number), log.local, start, end.position),
            self._put_part(index_name(number), index.local, start_row, end_row),
        )
        with self._lock:
            if self._segments.parts_of(number) is not parts or index.name is None:
                self._objects.settle([part.log.path, part.rows.path])
                return
            self._segments.set_parts(number, SegmentParts((*kept, part), end.seq))
            self._changed()
        self.sync_names()

    def _put_part(self, name: str, local: File, start: int, end: int) -> StoredFile:
        return self._objects.put(part_name(name, start), name, local, start, end)

    def fetch(self, stored: StoredFile, to: File) -> None:
        """Append an object to a local file. Raises OSError."""
        begin = to.size()
        for at in range(0, stored.size, _FETCHED):
            size = min(_FETCHED, stored.size - at)
            data = self.reader.read_whole(StoredRange(stored.path, stored.size), at, size)
            self.with_room(partial(_put_at, to, begin + at, data))

    # --- places -------------------------------------------------------------------------------

    def kept(self) -> set[str]:
        """The objects that must not be deleted although no manifest names them yet."""
        unnamed = self._objects.unnamed()  # first: objects leave it for the manifest
        with self._lock:
            named = (node.stored for node in self._names.values())
            return unnamed.union(stored.path for stored in named if stored is not None)

    def place(self, name: str, position: int, length: int) -> tuple[str, int] | None:
        """The object that has a range of a file, and where; None if there is none yet."""
        with self._lock:
            node = self._names.get(name)
            stored = node.stored if node is not None else None
        if stored is None or position + length > stored.size:
            return None
        return stored.path, position

    def stored(self) -> list[StoredFile]:
        """The files that are objects."""
        with self._lock:
            return [node.stored for node in self._listed() if node.stored is not None]

    # --- the list of files --------------------------------------------------------------------

    def _commit(self) -> None:
        """Make the manifest name the present files. Raises OSError."""
        for node in self._unsaved():
            self.upload(node)
        with self._lock:
            version, listed = self._version, self._listed()
            files = [node.stored for node in listed if node.stored is not None]
            files += self._segments.files()
            start, tail = self._segments.starts(self._is_log_chained)
        path = self._objects.put_list(files)

        def change(manifest: Manifest) -> Manifest:
            return replace(
                manifest,
                directory=path,
                chain_start=max(manifest.chain_start, start),
                tail_start=max(manifest.tail_start, tail),
            )

        self.patience.until_answered(
            "writing the manifest", lambda: self._shard.update_blocking(change, _SWAP_SECONDS)
        )
        with self._lock:
            self._committed = max(self._committed, version)
            self._objects.settle([path, *(file.path for file in files)])
            for node in listed:
                if node.stored is not None and node.local is not None and node.name is not None:
                    self._copies.add(node)
            self._segments.keep(
                lambda number: self._is_log_chained(number) or self._is_chained(index_name(number))
            )

    def _unsaved(self) -> list[Node]:
        """The files with a name that are neither objects nor in the chain."""
        with self._lock:
            return [
                node
                for name, node in self._names.items()
                if node.stored is None
                and not (node.chained or node.kept_local or name.endswith(TEMPORARY))
            ]

    def _listed(self) -> list[Node]:
        return [
            node
            for name, node in self._names.items()
            if node.stored is not None and not node.chained and not name.endswith(TEMPORARY)
        ]

    # --- with the lock held -------------------------------------------------------------------

    def _changed(self) -> None:
        self._version += 1
        self._mine.version = self._version

    def _node(self, name: str) -> Node:
        try:
            return self._names[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def _unname(self, node: Node) -> None:
        """Remove a file's name; its readers keep the file."""
        assert node.name is not None, "it has a name"
        self._copies.forget(node)
        if node.stored is not None:
            self._objects.settle([node.stored.path])
        if node.local is not None:
            self._local.remove(node.name)
        number = segment_number(node.name)
        if number is not None and node.chained and node.name == log_name(number):
            self._segments.remove(number)
        node.name = None

    def _note_sealed(self) -> None:
        """Once the files of a segment exist, those before it are sealed."""
        newest = self._segments.newest or 0
        if newest > self._segments.sealed_below and index_name(newest) in self._names:
            self._segments.sealed_below = newest
            self.on_sealed()

    def _is_chained(self, name: str) -> bool:
        node = self._names.get(name)
        return node is not None and node.chained

    def _is_log_chained(self, number: int) -> bool:
        return self._is_chained(log_name(number))

    def _is_of_active(self, name: str) -> bool:
        """Whether a file belongs to the active segment, whose index may be rebuilt."""
        number = segment_number(name.removesuffix(TEMPORARY))
        if number is None or number != self._segments.newest:
            return False
        is_index = name.removesuffix(TEMPORARY) == index_name(number)
        return is_index and self._is_log_chained(number)

    def _localise(self, node: Node, stored: StoredFile) -> File:
        """Copy an object to a local file."""
        assert node.name is not None, "it has a name"
        name = node.name
        local = self.with_room(lambda: self._local.create(name))
        self.fetch(stored, local)
        return local


def _put_at(local: File, at: int, data: bytes) -> None:
    """Append, also over the remains of an attempt that ran out of space."""
    local.truncate(at)
    local.append([data])
