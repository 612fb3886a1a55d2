"""The broker's data folder: one process holds it at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from quafka_broker.wal.disk import sync_folder
from quafka_loop import file_modes
from quafka_telemetry.startup import StartupError


class DataFolder:
    """A broker's data folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    @property
    def wal(self) -> Path:
        """The folder of the log."""
        return self._path / "wal"

    @property
    def restoring(self) -> Path:
        """The folder into which a snapshot is restored; it becomes `wal` when it is complete."""
        return self._path / "restoring"

    @property
    def importing(self) -> Path:
        """A file that exists while an import is under way: its topics are not complete."""
        return self._path / "importing"

    @property
    def size(self) -> int:
        """The size of its file system in bytes."""
        return shutil.disk_usage(self._path).total

    def hold(self, *, to_import: bool = False) -> None:
        """Lock the folder, and create the log's folder in it.

        Raises:
            StartupError: the folder cannot be written, another broker holds it, a snapshot is being
                restored into it, or topics are being imported; unless that is `to_import`.
        """
        self.lock()
        if self.importing.exists() and not to_import:
            self.release()
            raise StartupError(
                f"an import into the data folder {self._path} did not finish: repeat `quafka "
                f"import`, or remove {self.importing} to keep the part that is there"
            )
        if self.restoring.exists():
            self.release()
            raise StartupError(
                f"a restore into the data folder {self._path} did not finish: repeat `quafka "
                f"snapshot restore`, or remove {self.restoring}"
            )
        try:
            file_modes.make_folder(self.wal, exist_ok=True)
            # The log syncs its own folder; the entry of that folder must be durable, too.
            sync_folder(self._path)
        except OSError as e:
            self.release()
            raise StartupError(f"cannot use the data folder {self._path}: {e.strerror}") from e

    def lock(self) -> None:
        """Lock the folder; its contents stay as they are.

        Raises:
            StartupError: the folder cannot be written, or another broker holds it.
        """
        try:
            is_new = not self._path.exists()
            file_modes.make_folders(self._path)
            self._lock = file_modes.open_descriptor(
                self._path / "broker.lock", os.O_RDWR | os.O_CREAT
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sync_folder(self._path)
            if is_new:
                sync_folder(self._path.resolve().parent)
        except BlockingIOError as e:
            self.release()
            raise StartupError(f"the data folder {self._path} is held by another broker") from e
        except OSError as e:
            self.release()
            raise StartupError(f"cannot use the data folder {self._path}: {e.strerror}") from e

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
