"""A disk whose writes stay in memory: a log is opened and examined, and its files do not change."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from quafka_broker.wal.disk import Buffer, Disk, File


class TrialDisk:
    """The files of another disk. What is written, renamed or removed is forgotten at the end."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, _TrialFile | None] = {}
        """What differs from the disk; None: the file is not there."""

    def create(self, name: str) -> File:
        if self.exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        made = self._files[name] = _TrialFile()
        return made

    def open(self, name: str) -> File:
        found = self._files.get(name)
        if found is None:
            if not self.exists(name):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            found = self._files[name] = _TrialFile(self._disk.open(name))
        return found

    def allocate(self, name: str, size: int) -> None:
        """Note that the file exists; its content has no meaning."""
        if not self.exists(name):
            self.create(name)

    def names(self) -> list[str]:
        changed = self._files
        there = {name for name in self._disk.names() if changed.get(name, self) is not None}
        return sorted(there | {name for name, file in changed.items() if file is not None})

    def exists(self, name: str) -> bool:
        if name in self._files:
            return self._files[name] is not None
        return self._disk.exists(name)

    def remove(self, name: str) -> None:
        self.open(name)  # raises FileNotFoundError
        self._files[name] = None

    def rename(self, name: str, to: str) -> None:
        self.open(name)
        self._files[to] = self._files[name]
        self._files[name] = None

    def sync_names(self) -> None:
        """Do nothing."""


class _TrialFile:
    """The first bytes of a file of the disk, and what was appended to them."""

    def __init__(self, file: File | None = None) -> None:
        self._file = file
        self._kept = 0 if file is None else file.size()
        self._appended = bytearray()

    def append(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self._appended += buffer

    def read(self, position: int, size: int) -> bytes:
        end = position + size
        before = b""
        if self._file is not None and position < self._kept:
            before = self._file.read(position, min(end, self._kept) - position)
        first, last = max(position - self._kept, 0), max(end - self._kept, 0)
        return before + self._appended[first:last]

    def read_cached(self, position: int, size: int) -> bytearray | None:
        """Read as `read` does: nobody else waits for it."""
        found = bytearray(self.read(position, size))
        return found if len(found) == size else None

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Announce the reads of the disk's file."""
        if self._file is not None:
            self._file.will_read(ranges)

    def write_back(self) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""

    def truncate(self, size: int) -> None:
        if size > self.size():
            self._appended += bytes(size - self.size())
        del self._appended[max(size - self._kept, 0) :]
        self._kept = min(self._kept, size)

    def size(self) -> int:
        return self._kept + len(self._appended)

    def close(self) -> None:
        """Do nothing: the file may be opened again."""
