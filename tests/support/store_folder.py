"""A log's folder over a store in memory that records every change, and a chain that is simple.

The chain commits with each sync of the active segment, one object after the other: the folder can
be tested under any log. The process can be killed at each change of the store: what is left is the
store as it was then.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from quafka_broker.chain.chain import DurableEnd
from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.materialise import materialise
from quafka_broker.chain.patience import Patience
from quafka_broker.chain.store_disk import StoreDisk
from quafka_broker.chain.store_file import FileContent, StoreFile
from quafka_broker.chain.takeover import first_read
from quafka_broker.chain.uploads import Uploads
from quafka_broker.wal.disk import Buffer, File
from quafka_broker.wal.segment import index_name
from quafka_loop import threads
from quafka_objects.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from quafka_objects.store import ETag, ObjectInfo, ObjectStore, StoredObject
from quafka_proto.chain_format import (
    ENTRIES,
    HEADER_SIZE,
    NONCE_SIZE,
    ChainHeader,
    ShardManifest,
    chain_path,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
    manifest_path,
)
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    check_file_header,
    decode_row,
)

SHARD = 3
CACHE_BYTES = 4 << 20


class Change(NamedTuple):
    """An object was written; None: deleted."""

    path: str
    data: bytes | None


class RecordedStore(ObjectStore):
    """Objects in memory. `begin_with` is there from the start; `trouble` is the share of calls that
    fail, before or after they take effect."""

    def __init__(
        self, begin_with: dict[str, bytes] | None = None, trouble: float = 0.0, seed: int = 0
    ) -> None:
        self.where = "memory"
        self.objects = dict(begin_with or {})
        self.operations: list[Change] = []
        self.trouble = trouble
        self.failed = 0
        self.reads = 0
        self.down = False
        self._begun_with = dict(self.objects)
        self._random = random.Random(seed)
        self._lock = threads.Lock()

    @property
    def is_remote(self) -> bool:
        return True

    def left_after(self, operations: int) -> dict[str, bytes]:
        """The objects after so many changes."""
        objects = dict(self._begun_with)
        for path, data in self.operations[:operations]:
            if data is None:
                objects.pop(path, None)
            else:
                objects[path] = data
        return objects

    # --- reads --------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self._troubled():
            self.reads += 1
            data = self._found(path)
            return data[start:] if length is None else data[start : start + length]

    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        return memoryview(self.read(path, start, length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(path, start, length) for start, length in ranges]

    def get(self, path: str) -> StoredObject:
        data = self.read(path)
        return StoredObject(data, str(hash(data)))

    def exists(self, path: str) -> bool:
        return path in self.objects

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        found = dict(self.objects)
        for path in sorted(found):
            if path.startswith(f"{folder}/") and path > after:
                yield ObjectInfo(path, len(found[path]))

    def list_folders(self, folder: str) -> list[str]:
        raise NotImplementedError

    # --- writes -------------------------------------------------------------------------------

    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        with self._troubled():
            self._write(path, bytes(data) if isinstance(data, Buffer) else b"".join(data))

    def create(self, path: str, data: Buffer) -> ETag:
        with self._troubled(), self._lock:
            if self.objects.get(path, data) != data:
                raise ObjectExistsError(path)
            self._write(path, bytes(data))
            return str(hash(bytes(data)))

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        with self._troubled(), self._lock:
            found = self._found(path)
            if found != data and str(hash(found)) != expected:
                raise ObjectChangedError(path)
            self._write(path, bytes(data))
            return str(hash(bytes(data)))

    def delete(self, path: str) -> None:
        with self._troubled():
            self.objects.pop(path, None)
            self.operations.append(Change(path, None))

    def _write(self, path: str, data: bytes) -> None:
        self.objects[path] = data
        self.operations.append(Change(path, data))

    def _found(self, path: str) -> bytes:
        if path not in self.objects:
            raise ObjectNotFoundError(path)
        return self.objects[path]

    @contextmanager
    def _troubled(self) -> Iterator[None]:
        """Fail before or after the call takes effect, now and then."""
        fate = self._random.random() if self.trouble and not self.down else 1.0
        if self.down or fate < self.trouble / 2:
            self.failed += 1
            raise OSError(errno.EIO, "503 SlowDown")
        yield
        if fate < self.trouble:
            self.failed += 1
            raise TimeoutError("no answer")


class SimpleShard:
    """A shard's manifest in a store, and its chain, written by one call at a time."""

    def __init__(self, store: ObjectStore) -> None:
        """Take the shard over. No other owner may live."""
        self.store = store
        self.shard = SHARD
        path = manifest_path(SHARD)
        if not store.exists(path):
            store.create(path, encode_manifest(ShardManifest(SHARD)))
        found = store.get(path)
        before = decode_manifest(found.data, SHARD)
        self.epoch = before.epoch + 1
        self.manifest = replace(before, epoch=self.epoch)
        store.replace(path, encode_manifest(self.manifest), found.etag)
        start = first_read(self.manifest)
        self.objects = self._chain(start)
        self.next_seq = start + len(self.objects)
        self.durable = DurableEnd(self.next_seq, -1, 0)

    def update_blocking(
        self, change: Callable[[ShardManifest], ShardManifest], seconds: float | None = None
    ) -> ShardManifest:
        """Change the manifest, unless another owner has taken over."""
        found = self.store.get(manifest_path(SHARD))
        manifest = decode_manifest(found.data, SHARD)
        if manifest.epoch != self.epoch:
            raise FencedError(f"epoch {manifest.epoch}")
        self.manifest = change(manifest)
        self.store.replace(manifest_path(SHARD), encode_manifest(self.manifest), found.etag)
        return self.manifest

    def commit(self, header: ChainHeader, entries: bytes, rows: bytes) -> None:
        """Append an object to the chain."""
        data = encode_header(header) + entries + rows
        Patience(0.001).until_answered(
            "a commit", lambda: self.store.create(chain_path(SHARD, header.seq), data)
        )
        self.next_seq = header.seq + 1
        self.durable = DurableEnd(self.next_seq, header.segment, header.position + header.length)

    def _chain(self, start: int) -> list[ChainHeader]:
        found: list[ChainHeader] = []
        while self.store.exists(path := chain_path(SHARD, start + len(found))):
            data = self.store.read(path, 0, HEADER_SIZE)
            found.append(decode_header(data, SHARD, start + len(found)))
        return found


class CommittingFolder:
    """A `StoreDisk` whose syncs of the active segment are commits to the chain."""

    def __init__(self, store: RecordedStore, cache: Path, cache_bytes: int = CACHE_BYTES) -> None:
        """Take the shard over, as a broker that starts."""
        self.store = store
        self.shard = SimpleShard(store)
        self.disk: StoreDisk = materialise(
            store, self.shard, self.shard.manifest, self.shard.objects, cache, cache_bytes,
            Patience(0.001),
        )  # fmt: skip
        self.uploads = Uploads(self.disk)
        self._committed: dict[str, int] = {}
        for name in self.disk.names():
            file = self.disk.open(name)
            assert isinstance(file, StoreFile)
            if file.node.chained and name.endswith(".log"):
                self._committed[name] = file.size()

    @property
    def operations(self) -> list[Change]:
        """All changes of the store so far."""
        return self.store.operations

    def create(self, name: str) -> File:
        self._committed.pop(name, None)
        return CommittingFile(self, self.disk.create(name))

    def open(self, name: str) -> File:
        return CommittingFile(self, self.disk.open(name))

    def allocate(self, name: str, size: int) -> None:
        self.disk.allocate(name, size)

    def names(self) -> list[str]:
        return self.disk.names()

    def exists(self, name: str) -> bool:
        return self.disk.exists(name)

    def remove(self, name: str) -> None:
        self.disk.remove(name)

    def rename(self, name: str, to: str) -> None:
        self.disk.rename(name, to)

    def sync_names(self) -> None:
        self.disk.sync_names()

    def close(self) -> None:
        self.disk.close()

    def commit(self, node: FileContent) -> None:
        """Commit what was appended to the active segment since the last commit."""
        name, log = node.name, node.local
        if name is None or log is None or not node.chained or not name.endswith(".log"):
            return
        number = int(name.removesuffix(".log"))
        start = self._committed.get(name, FILE_HEADER_SIZE)
        size = log.size()
        if size <= start:
            return
        head = check_file_header(log.read(0, FILE_HEADER_SIZE), LOG_MAGIC, number)
        index = self.disk.open(index_name(number))
        rows = index.read(FILE_HEADER_SIZE, index.size())
        found = [decode_row(rows, at) for at in range(0, len(rows), INDEX_ROW_SIZE)]
        first = next(n for n, row in enumerate(found) if row.position == start)
        header = ChainHeader(
            ENTRIES, SHARD, self.shard.next_seq, self.shard.epoch, os.urandom(NONCE_SIZE),
            number, start, found[first].global_id, len(found) - first, head.salt, size - start,
        )  # fmt: skip
        self.shard.commit(header, log.read(start, size - start), rows[first * INDEX_ROW_SIZE :])
        self._committed[name] = size


class CommittingFile:
    """A file of that folder."""

    def __init__(self, folder: CommittingFolder, file: File) -> None:
        assert isinstance(file, StoreFile)
        self._folder = folder
        self._file = file
        self.append = file.append
        self.read = file.read
        self.read_cached = file.read_cached
        self.will_read = file.will_read
        self.write_back = file.write_back
        self.truncate = file.truncate
        self.size = file.size
        self.close = file.close

    def sync(self) -> None:
        self._file.sync()
        self._folder.commit(self._file.node)

    @property
    def node(self) -> FileContent:
        """Where the file is."""
        return self._file.node
