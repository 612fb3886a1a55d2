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
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from quafka_broker.chain.block_cache import BlockCache
from quafka_broker.chain.chained_files import ChainedFiles
from quafka_broker.chain.file_objects import FileObjects, segment_number
from quafka_broker.chain.local_copies import LocalCopies
from quafka_broker.chain.object_reader import ObjectReader, StoredRange
from quafka_broker.chain.owned_shard import OwnedShard
from quafka_broker.chain.patience import Patience
from quafka_broker.chain.segment_parts import SegmentParts
from quafka_broker.chain.shard_files import ShardFiles
from quafka_broker.chain.store_file import NO_ROOM, FileContent, StoreFile
from quafka_broker.wal.disk import TEMPORARY, File, RealDisk
from quafka_broker.wal.segment import index_name, log_name
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import StoredFile

log = logging.getLogger("quafka.broker.store")

BLOCKS = "blocks"
_FETCHED = 64 << 20

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
    """One shard's folder. See `wal.disk.Disk`.

    Attributes:
        files: the files by name.
        chained: those whose content is only in the chain.
    """

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
        self.files = ShardFiles(
            shard, self._local, self._objects, self._copies, self.patience, files
        )
        self.chained = ChainedFiles(self.files, shard, self._objects)
        self._ticks = itertools.count(1)

    def close(self) -> None:
        """End all requests, and remove the folder for good. The log must be closed."""
        self.patience.end_within(0.0)
        self.reader.close()
        self.cache.close()
        with self.files.lock:
            for node in self.files.nodes.values():
                if node.local is not None:
                    node.local.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- Disk ---------------------------------------------------------------------------------

    def create(self, name: str) -> File:
        with self.files.lock:
            if name in self.files.nodes:
                raise FileExistsError(name)
            node = FileContent(name, self.with_room(lambda: self._local.create(name)))
            number = segment_number(name)
            if number is not None:
                node.chained = True
                if name == log_name(number):
                    self.files.segments.add(number, self._shard.next_seq)
            self.files.nodes[name] = node
        return StoreFile(self, node)

    def open(self, name: str) -> File:
        with self.files.lock:
            return StoreFile(self, self.files.find(name))

    def allocate(self, name: str, size: int) -> None:
        with self.files.lock:
            self.with_room(lambda: self._local.allocate(name, size))
            if name not in self.files.nodes:
                node = self.files.nodes[name] = FileContent(name, self._local.open(name))
                node.kept_local = True

    def names(self) -> list[str]:
        with self.files.lock:
            return sorted(self.files.nodes)

    def exists(self, name: str) -> bool:
        return name in self.files.nodes

    def remove(self, name: str) -> None:
        with self.files.lock:
            node = self.files.find(name)
            del self.files.nodes[name]
            self.files.unname(node)
            if not (name.endswith(TEMPORARY) or node.kept_local):
                self.files.changed()

    def rename(self, name: str, to: str) -> None:
        with self.files.lock:
            node = self.files.find(name)
            before = self.files.nodes.get(to)
            if before is not None:
                self.files.unname(before)
            if node.local is not None:
                self._local.rename(name, to)
            del self.files.nodes[name]
            self.files.nodes[to] = node
            node.name = to
            node.chained = self.files.is_of_active(to)
            if node.stored is not None:
                node.save(node.stored._replace(name=to))
            self.files.changed()

    def sync_names(self) -> None:
        self.files.sync()

    def restore(self, number: int, first_seq: int, parts: SegmentParts) -> tuple[File, File]:
        """Create the files of a segment from its parts and from the chain, from this object on."""
        log, index = self.create(log_name(number)), self.create(index_name(number))
        with self.files.lock:
            self.files.segments.add(number, first_seq, parts)
        return log, index

    # --- files --------------------------------------------------------------------------------

    def change(self, node: FileContent) -> File:
        local = node.local
        if node.stored is None and local is not None:
            return local
        with self.files.lock:
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
        with self.files.lock:
            made = self._copies.shrink() or self.cache.shrink()
        if made:
            log.warning("the local disk is full: the cache has been reduced")
        return made

    def save(self, node: FileContent) -> None:
        name = node.name
        if node.chained or node.kept_local or name is None or self.files.is_of_active(name):
            return
        if node.stored is None:
            self.files.upload(node)
            if not name.endswith(TEMPORARY):
                with self.files.lock:
                    self.files.changed()
        if not name.endswith(TEMPORARY):
            self.sync_names()

    def tick(self) -> int:
        return next(self._ticks)

    def figures(self) -> DiskFigures:
        """The files that wait to be uploaded, and the use of the cache."""
        files = [node for _, files in self.chained.sealed() for node in files]
        waiting = sum(node.local.size() for node in files if node.local is not None)
        return DiskFigures(len(files), waiting, *self._copies.used)

    def fetch(self, stored: StoredFile, to: File) -> None:
        """Append an object to a local file. Raises OSError."""
        begin = to.size()
        for at in range(0, stored.size, _FETCHED):
            size = min(_FETCHED, stored.size - at)
            data = self.reader.read_whole(StoredRange(stored.path, stored.size), at, size)
            self.with_room(partial(_put_at, to, begin + at, data))

    def _localise(self, node: FileContent, stored: StoredFile) -> File:
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
