"""Access to Kafka's files; errors name the file."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

from quafka_broker.kafka_logs.errors import KafkaLogError

_LOCK = struct.Struct("@hhqqi0q")
"""`struct flock` of Linux: type, whence, start, length, pid."""
SMALL_LIMIT = 256 << 20
"""The maximum bytes of a file that is read as a whole."""


def names_in(folder: Path) -> list[str]:
    """The names in a folder. Raises KafkaLogError."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as e:
        raise KafkaLogError(folder, e.strerror or str(e)) from e


def size_of(path: Path) -> int:
    """A file's size in bytes. Raises KafkaLogError."""
    try:
        return path.stat().st_size
    except OSError as e:
        raise KafkaLogError(path, e.strerror or str(e)) from e


def changed(path: Path) -> int:
    """When a file or the names in a folder last changed, in ns. Raises KafkaLogError."""
    try:
        return path.stat().st_mtime_ns
    except OSError as e:
        raise KafkaLogError(path, e.strerror or str(e)) from e


def open_file(path: Path) -> int:
    """A descriptor of a regular file, for reading.

    Raises:
        KafkaLogError: it cannot be opened, or is not a regular file: opening a FIFO would block.
        FileNotFoundError
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as e:
        raise KafkaLogError(path, e.strerror or str(e)) from e
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise KafkaLogError(path, "not a regular file")
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether another process holds a (POSIX) lock on a file. Raises KafkaLogError."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with os.fdopen(open_file(path), "rb") as file:
            kind: int = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
    except FileNotFoundError:
        return False
    except OSError as e:
        raise KafkaLogError(path, e.strerror or str(e)) from e
    return kind != fcntl.F_UNLCK


def content_of(path: Path) -> bytes:
    """Read a whole file that is not a segment. Raises KafkaLogError, also if it is too large."""
    content = content_if_there(path)
    if content is None:
        raise KafkaLogError(path, os.strerror(errno.ENOENT))
    return content


def content_if_there(path: Path) -> bytes | None:
    """As `content_of`, but None if there is no such file. Raises KafkaLogError."""
    try:
        with os.fdopen(open_file(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > SMALL_LIMIT:
                raise KafkaLogError(path, f"larger than {SMALL_LIMIT} bytes")
            return file.read(size)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise KafkaLogError(path, e.strerror or str(e)) from e
