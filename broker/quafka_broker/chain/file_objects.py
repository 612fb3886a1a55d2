"""Writes the objects of a shard's files, and of the lists of files."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence

from quafka_broker.chain.patience import Patience
from quafka_broker.wal.disk import File
from quafka_loop import threads
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import (
    StoredFile,
    directory_path,
    encode_directory,
    file_path,
    segment_nonce,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    LOG_MAGIC,
    FileHeader,
    check_file_header,
)

_CHUNK = 8 << 20
_MAGICS = {".log": LOG_MAGIC, ".oidx": INDEX_MAGIC}


class FileObjects:
    """One owner's objects. Thread-safe; writes are repeated until they are done."""

    def __init__(self, store: ObjectStore, shard: int, epoch: int, patience: Patience) -> None:
        self._store = store
        self._shard = shard
        self._epoch = epoch
        self._patience = patience
        self._lock = threads.Lock()
        self._unnamed: set[str] = set()

    def unnamed(self) -> set[str]:
        """The objects that exist or are about to, and that no manifest names yet."""
        with self._lock:
            return set(self._unnamed)

    def settle(self, paths: Iterable[str]) -> None:
        """Release objects that a manifest now names, or never will."""
        with self._lock:
            self._unnamed.difference_update(paths)

    def put(self, listed: str, name: str, local: File, start: int, end: int) -> StoredFile:
        """Write a range of a file as an object. `listed`: its name in the list of files.

        Raises:
            OSError: the file cannot be read, or the broker stops.
        """
        nonce = secrets.randbits(64)
        if segment_number(name) is not None:
            nonce = segment_nonce(nonce, _header(name, local.read(0, FILE_HEADER_SIZE)))
        path = file_path(self._shard, listed, self._epoch, nonce)
        with self._lock:
            self._unnamed.add(path)

        def put() -> None:
            short = end - start <= _CHUNK
            data = local.read(start, end - start) if short else _chunks(local, start, end)
            self._store.put(path, data)

        self._patience.until_answered(f"writing {path}", put)
        return StoredFile(listed, path, end - start)

    def put_list(self, files: Sequence[StoredFile]) -> str:
        """Write a list of files; returns its path. Raises OSError."""
        path = directory_path(self._shard, self._epoch, secrets.randbits(64))
        data = encode_directory(files)
        with self._lock:
            self._unnamed.add(path)
        self._patience.until_answered(f"writing {path}", lambda: self._store.put(path, data))
        return path


def segment_number(name: str) -> int | None:
    """The number of the segment that a finished file belongs to; None for other files."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and stem.isdecimal() and f".{suffix}" in _MAGICS else None


def _header(name: str, head: bytes) -> FileHeader | None:
    """The header of a segment's file; None without a valid one."""
    stem, _, suffix = name.partition(".")
    try:
        return check_file_header(head, _MAGICS[f".{suffix}"], int(stem))
    except Malformed:
        return None


def _chunks(local: File, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, _CHUNK):
        yield local.read(at, min(_CHUNK, end - at))
