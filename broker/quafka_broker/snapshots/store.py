"""Where snapshots are kept: a local folder, or an object store.

A file appears whole or not at all. `publish` is the one that fails where there is a file already.
All methods block; all raise OSError where the store cannot do it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from quafka_broker.wal.disk import sync_folder
from quafka_proto.snapshot_format import SEGMENTS, SNAPSHOTS

LOCK = "lock"
_PART = ".part"
_DEAD_SECONDS = 30.0
_OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss")


class Lock(Protocol):
    """Held by one command at a time."""

    def check(self) -> None:
        """Raises OSError where it may be somebody else's by now."""
        ...


class Store(Protocol):
    """The files of one DEST; paths are relative to it."""

    def read(self, path: str, at: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file. FileNotFoundError where there is none; fewer bytes at its end."""
        ...

    def files(self, folder: str) -> dict[str, int]:
        """The paths of all files below a folder, with their sizes."""
        ...

    def put(self, path: str, data: Iterable[bytes]) -> None:
        """Write a file, in place of one that is there; durable with the next `publish`."""
        ...

    def publish(self, path: str, data: bytes) -> None:
        """Write a file, durably, after all others. FileExistsError where there is one."""
        ...

    def link(self, source: Path, path: str) -> bool:
        """Let a file of this machine be this one, too; False where that cannot be."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file; a manifest, durably. One that is not there is no error."""
        ...

    def locked(self) -> AbstractContextManager[Lock]:
        """Hold the lock of DEST. BlockingIOError where another command does."""
        ...


class LocalStore:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, path: str, at: int = 0, size: int | None = None) -> bytes:
        with (self.folder / path).open("rb") as file:
            file.seek(at)
            return file.read(-1 if size is None else size)

    def files(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for place, _, names in os.walk(self.folder / folder, onerror=_unless_gone):
            for name in names:
                path = Path(place) / name
                with suppress(FileNotFoundError):  # removed meanwhile
                    found[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        return found

    def put(self, path: str, data: Iterable[bytes]) -> None:
        self._written(path, data).replace(self.folder / path)

    def publish(self, path: str, data: bytes) -> None:
        part = self._written(path, [data])
        for folder in (SEGMENTS, ""):  # the names of all others first
            with suppress(FileNotFoundError):
                sync_folder(self.folder / folder)
        try:
            os.link(part, self.folder / path)
        except FileExistsError:
            raise
        except OSError:  # no hard links here; the lock keeps others out
            part.replace(self.folder / path)
        else:
            part.unlink()
        sync_folder(part.parent)
        sync_folder(part.parent.parent)

    def _written(self, path: str, data: Iterable[bytes]) -> Path:
        part = self.folder / (path + _PART)
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                for some in data:
                    file.write(some)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # of a full disk nothing may be kept: it may be the broker's, too
            part.unlink(missing_ok=True)
            raise
        return part

    def link(self, source: Path, path: str) -> bool:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except FileExistsError:
            return target.samefile(source)
        except OSError:
            return False
        return True

    def remove(self, path: str) -> None:
        target = self.folder / path
        target.unlink(missing_ok=True)
        if path.startswith(f"{SNAPSHOTS}/") and target.parent.is_dir():
            # What it needs must not be gone while it might come back.
            sync_folder(target.parent)
            if not any(target.parent.iterdir()):
                target.parent.rmdir()

    @contextmanager
    def locked(self) -> Generator[Lock]:
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        for made in missing:  # durably, as all that will be in it
            sync_folder(made.parent)
        fd = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield _Ours()
        finally:
            os.close(fd)


def _unless_gone(error: OSError) -> None:
    """Raise: what a folder holds that cannot be read would be taken for not there, or garbage."""
    if not isinstance(error, FileNotFoundError):
        raise error


class _Ours:
    """The system takes a lock away from the dead only."""

    def check(self) -> None:
        return


def open_store(dest: str, dead_seconds: float = _DEAD_SECONDS) -> Store:
    """The store that DEST names: a path, or a URL such as s3://bucket/prefix.

    Raises:
        OSError: it is of no known kind, or what it needs is not installed.
    """
    if not dest:
        raise OSError("DEST is empty")
    if dest.startswith("file:"):
        return _folder(_path_of(dest))
    if "://" not in dest:
        return _folder(Path(dest))
    scheme, _, rest = dest.partition("://")
    if scheme not in _OBJECT_STORES:
        allowed = ", ".join(f"{scheme}://" for scheme in _OBJECT_STORES)
        raise OSError(f"DEST is a folder, file:///folder or one of {allowed}")
    try:
        from quafka_broker.snapshots.object_store import ObjectStore
    except ModuleNotFoundError as e:
        raise OSError(f"{dest} needs obstore: pip install 'quafka[s3]'") from e
    return ObjectStore(f"s3://{rest}" if scheme == "s3a" else dest, dead_seconds)


def _path_of(url: str) -> Path:
    """As readers take it: %20 is a blank, and a host is none of ours."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise OSError("a URL of a folder has three slashes, as in file:///folder")
    return Path(unquote(parts.path))


def _folder(path: Path) -> Store:
    if path.exists() and not path.is_dir():
        raise OSError("it is no folder")
    return LocalStore(path)
