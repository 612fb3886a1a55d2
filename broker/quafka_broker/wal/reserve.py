"""Room kept free on the disk, so that an operator can make room when it is full.

While it is held, producers' writes meet a full disk first. What frees room (deleting records and
topics, retention, checkpoints, rewriting) may use it; then producers wait until it is held again.
"""

from __future__ import annotations

import errno
import logging
import threading
import time

from quafka_broker.wal.disk import Disk

log = logging.getLogger("quafka.broker.wal")

NAME = "reserve"
_RETRY_SECONDS = 1.0


class Reserve:
    """The file `reserve`. Methods block; any thread may call them."""

    def __init__(self, disk: Disk, size: int) -> None:
        """`size` in bytes; 0: none."""
        self._disk = disk
        self._size = size
        self._lock = threading.Lock()
        self._held = False
        self._next_try = 0.0

    @property
    def held(self) -> bool:
        """Whether producers may write."""
        return self._held or not self._size

    def hold(self) -> bool:
        """Take it, if there is room; tried again at most once a second."""
        with self._lock:
            if self.held:
                return True
            now = time.monotonic()
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
        """Give it up; False if it was not held."""
        with self._lock:
            if not self._held:
                return False
            log.warning("the disk is full: using the reserve of %d bytes", self._size)
            self._disk.remove(NAME)
            self._held = False
            self._next_try = time.monotonic() + _RETRY_SECONDS
            return True
