"""Disk space held in reserve, so that space can be freed on a full disk.

While the reserve is held, producers' writes fail first on a full disk. Work that frees space
(deletion of records and topics, retention, checkpoints, rewrites) may use the reserve. Producers
are then refused until it is held again.
"""

from __future__ import annotations

import errno
import logging

from quafka_broker.wal.disk import Disk
from quafka_loop import clock, threads

log = logging.getLogger("quafka.broker.wal")

NAME = "reserve"
_RETRY_SECONDS = 1.0


class Reserve:
    """The file `reserve`. Methods block; any thread may call them."""

    def __init__(self, disk: Disk, size: int) -> None:
        """`size` in bytes; 0: no reserve."""
        self._disk = disk
        self._size = size
        self._lock = threads.Lock()
        self._held = False
        self._next_try = 0.0

    @property
    def held(self) -> bool:
        """Whether producers may write."""
        return self._held or not self._size

    def hold(self) -> bool:
        """Hold the reserve if the disk has room; retried at most once a second."""
        with self._lock:
            if self.held:
                return True
            now = clock.monotonic()
            if now < self._next_try:
                return False
            self._next_try = now + _RETRY_SECONDS
            try:
                self._disk.allocate(NAME, self._size)
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    log.warning("no reserve can be kept on the disk: %s", e.strerror or e)
                    self._size = 0
                return self.held
            self._held = True
            return True

    def release(self) -> bool:
        """Free the reserved space; False if it was not held."""
        with self._lock:
            if not self._held:
                return False
            log.warning("the disk is full: using the reserve of %d bytes", self._size)
            self._disk.remove(NAME)
            self._held = False
            self._next_try = clock.monotonic() + _RETRY_SECONDS
            return True
