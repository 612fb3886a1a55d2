"""Decides when an append counts as durable, and syncs files."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_broker.wal.disk import File
from quafka_broker.wal.errors import SyncError


@dataclass(frozen=True, slots=True)
class FsyncPolicy:
    """The setting `wal.fsync`.

    Attributes:
        interval: None: sync before an append is answered. 0: never sync. Otherwise: sync at most
            this many seconds after the write.
    """

    interval: float | None = None

    @property
    def every_commit(self) -> bool:
        """Whether an answered append survives a power cut."""
        return self.interval is None


def sync_file(file: File) -> None:
    """Sync a file.

    Raises:
        SyncError: it failed. The state of the kernel's dirty pages is then unknown, so nothing is
            ever retried (the "fsyncgate" lesson).
    """
    try:
        file.sync()
    except OSError as e:
        raise SyncError(e.errno, f"fsync failed: {e.strerror or e}") from e
