"""A local folder for snapshots."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from quafka_broker.snapshots.destination import LOCK, Destination, Lock
from quafka_loop import file_modes
from quafka_objects.folder import FolderStore, sync_folder
from quafka_proto.snapshot_format import SEGMENTS, SNAPSHOTS


class FolderDestination(FolderStore, Destination):
    """A folder. Files of the log are linked if it is on the log's file system."""

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        self.write_unsynced(path, chunks)

    def link(self, source: Path, path: str) -> bool:
        target = self.root / path
        file_modes.make_folders(target.parent)
        try:
            os.link(source, target)
        except FileExistsError:
            return target.samefile(source)
        except OSError:
            return False
        return True

    def publish(self, path: str, data: bytes) -> None:
        for folder in (SEGMENTS, ""):  # the names of all other files first
            with suppress(FileNotFoundError):
                sync_folder(self.root / folder)
        self.create(path, data)

    def delete(self, path: str) -> None:
        """Delete a file, a manifest durably: it must not come back without its segments."""
        target = self.root / path
        target.unlink(missing_ok=True)
        if path.startswith(f"{SNAPSHOTS}/") and target.parent.is_dir():
            sync_folder(target.parent)
            if not any(target.parent.iterdir()):
                target.parent.rmdir()

    @contextmanager
    def locked(self) -> Generator[Lock]:
        for made in self.make_parents():
            sync_folder(made.parent)
        fd = file_modes.open_descriptor(self.root / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield _FileLock()
        finally:
            os.close(fd)


class _FileLock:
    """A file lock, which cannot be lost: the system releases it only when its holder ends."""

    def check(self) -> None:
        return
