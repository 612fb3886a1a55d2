"""File descriptors of many files, only some of which are open at a time.

A log of a terabyte has two thousand files, but a process may have 1,024 descriptors, and needs some
for sockets. So a descriptor is opened when its file is used, and the least recently used descriptor
is closed when too many are open.
"""

from __future__ import annotations

import errno
import os
import resource
from collections import OrderedDict
from pathlib import Path

from quafka_loop import file_modes, threads

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_MOST = 4_096
_LEAST = 16
_SHARE = 4  # a pool uses 1/4 of the process's descriptors


class Descriptors:
    """A bounded pool of idle descriptors. Thread-safe.

    The bound does not count descriptors in use, nor those that cannot be closed because their file
    has unsynced writes or has lost its name.
    """

    def __init__(self, most: int | None = None) -> None:
        """`most`: the bound of idle descriptors; by default a quarter of the soft limit."""
        if most is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = _MOST if soft == resource.RLIM_INFINITY else soft // _SHARE
        self.most = min(_MOST, max(_LEAST, most))
        # Re-entrant: garbage collection may close a descriptor while this thread holds the lock.
        self.lock = threads.RLock()
        self.idle: OrderedDict[Descriptor, None] = OrderedDict()  # least recently used first


class Descriptor:
    """One file's descriptor in a pool.

    It refers to the file that had the name when the descriptor was created. If another file has
    that name when the descriptor is reopened, reopening fails with ESTALE: no reader gets another
    file's bytes.
    """

    def __init__(self, pool: Descriptors, path: Path, flags: int = 0) -> None:
        """Open the file. Raises OSError."""
        self._pool = pool
        self._path = path
        self._uses = 0
        self._unsynced = False
        self._nameless = False
        self._closed = False
        self._fd = file_modes.open_descriptor(path, flags | _FLAGS)
        status = os.fstat(self._fd)
        self._inode = status.st_dev, status.st_ino
        with pool.lock:
            self._make_idle()

    def acquire(self) -> int:
        """The descriptor, which stays open until `release`.

        Raises:
            OSError: the file cannot be reopened; the caller must not call `release`.
        """
        with self._pool.lock:
            if self._fd < 0:
                self._open()
            self._pool.idle.pop(self, None)
            self._uses += 1
            return self._fd

    def acquire_open(self) -> int | None:
        """`acquire` without waiting for the device: None if the file is not open."""
        with self._pool.lock:
            return self.acquire() if self._fd >= 0 else None

    def release(self) -> None:
        """End a use that `acquire` began."""
        with self._pool.lock:
            self._uses -= 1
            self._make_idle()

    def set_unsynced(self, unsynced: bool) -> None:
        """Set whether the file has unsynced writes. Called while the descriptor is acquired.

        Such a descriptor stays open, because the kernel reports failed write-back only to
        descriptors that were open at the time.
        """
        self._unsynced = unsynced

    def lose_name(self) -> None:
        """Keep the descriptor open for its readers before the file loses its name.

        Raises:
            OSError: the file cannot be reopened.
        """
        with self._pool.lock:
            if not self._closed:
                self.acquire()
                self._nameless = True
                self.release()

    def rename(self, path: Path) -> None:
        """Note that the file has been renamed to `path`."""
        self._path = path

    def close(self) -> None:
        """Close the descriptor for good. It must not be in use."""
        with self._pool.lock:
            self._pool.idle.pop(self, None)
            self._closed = True
            self.shut()

    def _make_idle(self) -> None:
        if self._uses or self._unsynced or self._nameless or self._fd < 0:
            return
        idle = self._pool.idle
        idle[self] = None
        while len(idle) > self._pool.most:
            idle.popitem(last=False)[0].shut()

    def _open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file was closed", str(self._path))
        fd = os.open(self._path, _FLAGS)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self._inode:
            os.close(fd)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._path))
        self._fd = fd

    def shut(self) -> None:
        """Close the descriptor until its next use. Called by the pool, with its lock held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
