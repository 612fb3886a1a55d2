"""Uploads sealed segments, and the beginning of the active one, in the background."""

from __future__ import annotations

import errno
import logging

from quafka_broker.chain.store_disk import StoreDisk
from quafka_loop import threads

log = logging.getLogger("quafka.broker.store")

_POLL_SECONDS = 1.0
_TAIL_OBJECTS = 500
_TAIL_BYTES = 32 << 20
"""Limits of the chain that a takeover has to read: a second or two."""


class Uploads:
    """Uploads from one folder in one thread. Appends never wait for it."""

    def __init__(self, disk: StoreDisk) -> None:
        self._disk = disk
        self._wanted = threads.Event()
        self._stopped = False
        self._flush = False
        self._flushed = threads.Event()
        self._thread = threads.Thread(target=self._run, name="store-upload", daemon=True)
        self.segments = 0
        """Segments that were uploaded since the start."""

    def start(self) -> None:
        """Upload segments that are sealed, now and later. The log must be open."""
        self._disk.files.on_sealed = self._wanted.set
        self._wanted.set()
        self._thread.start()

    def flush(self, seconds: float) -> None:
        """Upload all entries that are only in the chain; wait at most this long. Blocks."""
        self._flushed.clear()
        self._flush = True
        self._wanted.set()
        self._flushed.wait(seconds)

    def close(self) -> None:
        """Abandon the upload under way: its entries are in the chain.

        The requests of the folder end first: see `Patience.end_within`.
        """
        self._stopped = True
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()

    def upload_sealed(self) -> None:
        """Upload the segments sealed by now. Raises OSError: the broker stops, or was fenced."""
        while not self._stopped and (sealed := self._disk.chained.sealed()):
            number, files = sealed[0]
            self._disk.chained.uploaded(
                number, [(node, self._disk.files.upload(node)) for node in files]
            )
            self.segments += 1

    def _run(self) -> None:
        while not self._stopped:
            self._wanted.wait(_POLL_SECONDS)
            self._wanted.clear()
            flush, self._flush = self._flush, False
            try:
                self.upload_sealed()
                objects, size = self._disk.chained.tail()
                large = objects >= _TAIL_OBJECTS or size >= _TAIL_BYTES
                if not self._stopped and (flush or large):
                    self._disk.chained.save_tail()
            except OSError as e:
                log.warning("sealed segments are not uploaded for now: %s", e)
                if e.errno == errno.EROFS:  # this broker has lost the shard
                    return
            finally:
                if flush:
                    self._flushed.set()
