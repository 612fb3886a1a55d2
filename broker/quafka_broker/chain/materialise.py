"""Builds the local folder of a shard after a takeover, with only the files that recovery needs.

Files of the list stay in the store. Entries that are only in the chain are written to local files
of their segments, each at its position. Then the log is opened as after any crash.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from quafka_broker.chain.owned_shard import OwnedShard
from quafka_broker.chain.patience import Patience
from quafka_broker.chain.segment_parts import SegmentPart, SegmentParts, parts_in
from quafka_broker.chain.store_disk import StoreDisk
from quafka_broker.wal.disk import File
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_loop import file_modes, threads
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import (
    ENTRIES,
    HEADER_SIZE,
    ChainHeader,
    ShardManifest,
    StoredFile,
    chain_path,
    decode_directory,
    decode_header,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    APPENDED,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    check_entry,
    check_file_header,
    decode_row,
    encode_file_header,
)

_READS_AT_ONCE = 32
_PROBE_BYTES = 4096
_READ_ATTEMPTS = 3
_NO_SEGMENT = 1 << 64


def materialise(
    store: ObjectStore,
    shard: OwnedShard,
    manifest: ShardManifest,
    objects: Sequence[ChainHeader],
    cache: Path,
    cache_bytes: int,
    patience: Patience | None = None,
) -> StoreDisk:
    """Build the folder of a shard. Blocks.

    Args:
        objects: the headers of the chain's valid objects, in order, from the first one that a new
            owner reads.
        cache: a local folder for all shards; leftovers of earlier owners on this machine are
            removed.

    Raises:
        DamagedLogError: an object is damaged, or entries are missing.
        OSError: the folder cannot be used, or the broker stops.
    """
    patience = patience or Patience()
    folder = _own_folder(cache / f"{shard.shard:04d}", shard.epoch)
    files = _files_of(store, manifest, patience)
    disk = StoreDisk(store, shard, folder, cache_bytes, files, patience)
    try:
        parts = _parts_of(files)
        segments = _Segments(disk, manifest, parts)
        wanted = _wanted(objects, files, parts)
        for header, data in _in_order(wanted, lambda header: _read(store, header, patience)):
            segments.add(header, data)
        segments.add_parts_below(_NO_SEGMENT)
        _add_active(disk)
    except BaseException:
        disk.close()
        raise
    return disk


def probe(cache: Path) -> None:
    """Make the folder for all shards, and write to it. Blocks. Raises OSError: it is of no use."""
    file_modes.make_folders(cache)
    name = cache / f".probe-{os.urandom(4).hex()}"
    try:
        with file_modes.create_file(name) as file:
            file.write(bytes(_PROBE_BYTES))
    finally:
        name.unlink(missing_ok=True)


def _own_folder(folder: Path, epoch: int) -> Path:
    """Create an empty folder for this epoch: a fenced broker may still use its own."""
    if folder.is_dir():
        for old in folder.iterdir():
            if old.name.isdecimal() and int(old.name) <= epoch:
                shutil.rmtree(old)
    own = folder / str(epoch)
    file_modes.make_folders(own, exist_ok=False)
    return own


def _files_of(store: ObjectStore, manifest: ShardManifest, patience: Patience) -> list[StoredFile]:
    path = manifest.directory
    if not path:
        return []
    data = patience.until_answered(f"reading {path}", lambda: store.read(path))
    try:
        return decode_directory(data)
    except Malformed as e:
        raise DamagedLogError(f"{path}: {e}") from e


def _parts_of(files: Sequence[StoredFile]) -> dict[int, Sequence[SegmentPart]]:
    """The parts of segments that are not whole objects."""
    stored = {file.name for file in files}
    return {n: some for n, some in parts_in(files).items() if log_name(n) not in stored}


def _wanted(
    objects: Sequence[ChainHeader],
    files: Sequence[StoredFile],
    parts: Mapping[int, Sequence[SegmentPart]],
) -> list[ChainHeader]:
    """The objects with entries that are in no file and no part."""
    stored = {file.name for file in files}
    ends = {number: some[-1].end for number, some in parts.items()}
    return [
        each
        for each in objects
        if each.kind == ENTRIES
        and log_name(each.segment) not in stored
        and each.position >= ends.get(each.segment, 0)
    ]


# --- segments in the chain ----------------------------------------------------------------------


class _Segments:
    """Writes the local files of the segments that are not objects, one after the other."""

    def __init__(
        self, disk: StoreDisk, manifest: ShardManifest, parts: Mapping[int, Sequence[SegmentPart]]
    ) -> None:
        self._disk = disk
        self._manifest = manifest
        self._parts = dict(parts)
        self._number = -1
        self._salt = 0
        self._files: tuple[File, File] | None = None

    def add(self, header: ChainHeader, data: bytes) -> None:
        """Append an object's entries, after those of the parts."""
        if self._files is None or header.segment != self._number:
            self.add_parts_below(header.segment)
            self._begin(header)
        assert self._files is not None, "a segment has begun"
        log, index = self._files
        if header.salt != self._salt or header.position != log.size():
            raise DamagedLogError(
                f"chain object {header.seq} does not continue segment {header.segment} at "
                f"position {log.size()}"
            )
        view = memoryview(data)
        log.append([view[HEADER_SIZE : header.rows_at]])
        index.append([view[header.rows_at : header.size]])

    def add_parts_below(self, number: int) -> None:
        """Write the files of segments whose entries are all in their parts."""
        for each in sorted(n for n in self._parts if n < number):
            self._restore(each, self._manifest.tail_start)

    def _begin(self, header: ChainHeader) -> None:
        number = header.segment
        if number in self._parts:
            self._restore(number, header.seq)
            return
        log, index = self._create(number, SegmentParts(), header.seq)
        log.append([encode_file_header(LOG_MAGIC, number, header.salt, APPENDED)])
        index.append([encode_file_header(INDEX_MAGIC, number, header.salt, APPENDED)])
        self._salt = header.salt

    def _restore(self, number: int, next_seq: int) -> None:
        """Write the files of a segment from its parts."""
        parts = SegmentParts(tuple(self._parts.pop(number)), next_seq)
        log, index = self._create(number, parts, self._manifest.chain_start)
        for part in parts.parts:
            if part.start != log.size():
                raise DamagedLogError(f"segment {number} has no part at position {log.size()}")
            self._disk.fetch(part.log, log)
            self._disk.fetch(part.rows, index)
        try:
            head = log.read(0, FILE_HEADER_SIZE)
            self._salt = check_file_header(head, LOG_MAGIC, number).salt
        except Malformed as e:
            raise DamagedLogError(f"the first part of segment {number}: {e}") from e

    def _create(self, number: int, parts: SegmentParts, first_seq: int) -> tuple[File, File]:
        present = set(self._disk.names())
        for name in (log_name(number), index_name(number)):
            if name in present:
                self._disk.remove(name)
        self._number = number
        self._files = self._disk.restore(number, first_seq, parts)
        return self._files


def _in_order(
    objects: Sequence[ChainHeader], read: Callable[[ChainHeader], bytes]
) -> Iterator[tuple[ChainHeader, bytes]]:
    """Yield the objects with their data, reading ahead."""
    ahead: deque[tuple[ChainHeader, Future[bytes]]] = deque()
    with threads.ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="chain-read") as readers:
        try:
            for header in objects:
                ahead.append((header, readers.submit(read, header)))
                if len(ahead) == _READS_AT_ONCE:
                    ready, data = ahead.popleft()
                    yield ready, data.result()
            while ahead:
                ready, data = ahead.popleft()
                yield ready, data.result()
        finally:
            readers.shutdown(cancel_futures=True)


def _read(store: ObjectStore, header: ChainHeader, patience: Patience) -> bytes:
    """Read an object and verify every byte: to recovery, a bad last entry is a torn write."""
    path = chain_path(header.shard, header.seq)
    fault = ""
    for _ in range(_READ_ATTEMPTS):
        data = patience.until_answered(f"reading {path}", lambda: store.read(path))
        try:
            _check(header, data)
        except Malformed as e:
            fault = str(e)
        else:
            return data
    raise DamagedLogError(f"{path}: {fault}")


def _check(header: ChainHeader, data: bytes) -> None:
    """Verify an object. Raises Malformed."""
    if decode_header(data, header.shard, header.seq) != header or len(data) != header.size:
        raise Malformed("it has changed, or is cut short")
    entries = memoryview(data)[: header.rows_at]
    position = header.position
    for at in range(header.rows_at, header.size, INDEX_ROW_SIZE):
        row = decode_row(data, at)
        if row.position != position:
            raise Malformed("its entries are not adjacent")
        check_entry(entries, header.offset_of(position), header.salt)
        position = row.end
    if header.offset_of(position) != header.rows_at:
        raise Malformed("it has entries without a row")


def _add_active(disk: StoreDisk) -> None:
    """Add a segment to append to if the chain has none: objects are never appended to."""
    logs = [name for name in disk.names() if name.endswith(".log")]
    if logs and disk.files.place(max(logs), 0, 0) is not None:
        newest = int(max(logs).removesuffix(".log"))
        Segment.create(disk, newest + 1).close()
    disk.sync_names()
