"""The seam between the log and the file system. Tests put a disk that fails or forgets behind it.

All methods block, but for `File.read_cached`; the log calls them from threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview

_IOV_MAX = 1024


class File(Protocol):
    """An open file that is only ever appended to."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write everything at the end.

        Raises:
            OSError: some or none of it was written; `truncate` puts the file back.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Read; fewer bytes at the end of the file. May wait for the device."""
        ...

    def read_cached(self, position: int, size: int) -> bytearray | None:
        """Read without waiting; None where not all of it is in memory."""
        ...

    def sync(self) -> None:
        """Make everything written durable (fdatasync)."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


class Disk(Protocol):
    """One folder's files."""

    def create(self, name: str) -> File:
        """A new, empty file."""
        ...

    def open(self, name: str) -> File:
        """An existing file."""
        ...

    def allocate(self, name: str, size: int) -> None:
        """A file that takes up so many bytes, whatever is in it. One that is there already is kept.

        Raises:
            OSError: there is no room; then there is no such file.
        """
        ...

    def names(self) -> list[str]:
        """The files there are."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file; durable after `sync_names`."""
        ...

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in place of one that has it; durable after `sync_names`."""
        ...

    def sync_names(self) -> None:
        """Make created and removed files durable (fsync of the folder)."""
        ...


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = os.open(path, flags | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o640)

    def append(self, buffers: Sequence[Buffer]) -> None:
        queue = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        at = 0
        while at < len(queue):
            written = os.writev(self._fd, queue[at : at + _IOV_MAX])
            if not written:
                raise OSError(errno.EIO, "a write wrote nothing")
            while at < len(queue) and written >= len(queue[at]):
                written -= len(queue[at])
                at += 1
            if written:
                queue[at] = queue[at][written:]

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)

    def read_cached(self, position: int, size: int) -> bytearray | None:
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise
        return buffer if count == size else None

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    """A folder of the operating system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str) -> File:
        return RealFile(self._folder / name, os.O_CREAT | os.O_EXCL)

    def open(self, name: str) -> File:
        return RealFile(self._folder / name, 0)

    def allocate(self, name: str, size: int) -> None:
        path = self._folder / name
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._folder.iterdir())

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def rename(self, name: str, to: str) -> None:
        (self._folder / name).replace(self._folder / to)

    def sync_names(self) -> None:
        sync_folder(self._folder)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable (fsync)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
