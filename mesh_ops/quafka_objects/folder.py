"""A local folder as an object store.

A write goes to a temporary file, which is fsynced and then renamed or linked to its path. So no
reader sees half an object, and a power cut leaves the old object or the new one. Temporary names
are random, because several processes may write the same path at a time. They begin with a dot, so
that readers of a folder of Parquet files ignore them.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from quafka_loop import file_modes
from quafka_objects.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from quafka_objects.store import Buffer, ETag, ObjectInfo, ObjectStore, StoredObject

_PART = re.compile(r"\.(.+)\.[0-9a-f]{8}\.part")


class FolderStore(ObjectStore):
    """The files below one folder, which the first write creates."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = str(root)

    @property
    def is_remote(self) -> bool:
        return False

    # --- reads --------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self._must_exist(path), (self.root / path).open("rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        with self._must_exist(path), (self.root / path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            end = size if length is None else min(size, start + length)
            if end <= start:
                return memoryview(b"")
            skipped = start % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(
                file.fileno(),
                end - start + skipped,
                access=mmap.ACCESS_READ,
                offset=start - skipped,
            )
        return memoryview(mapped)[skipped:]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._must_exist(path), (self.root / path).open("rb", buffering=0) as file:
            return [_pread(file.fileno(), start, length) for start, length in ranges]

    def get(self, path: str) -> StoredObject:
        data = self.read(path)
        return StoredObject(data, _etag(data))

    def exists(self, path: str) -> bool:
        return (self.root / path).is_file()

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        found: list[ObjectInfo] = []
        for place, _, names in os.walk(self.root / folder, onerror=_unless_missing):
            for name in names:
                file = Path(place) / name
                path = file.relative_to(self.root).as_posix()
                if path > after:
                    with suppress(FileNotFoundError):  # deleted since
                        found.append(ObjectInfo(path, file.stat().st_size))
        yield from sorted(found)

    def list_folders(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self.root / folder).iterdir() if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextmanager
    def _must_exist(self, path: str) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as e:
            raise ObjectNotFoundError(f"there is no {self.root / path}") from e

    # --- writes -------------------------------------------------------------------------------

    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        made = self.make_parents(path)
        self.write_unsynced(path, data)
        self._sync_parents(path, made)

    def create(self, path: str, data: Buffer) -> ETag:
        target = self.root / path
        made = self.make_parents(path)
        part = self._write_part(path, data)
        try:
            self._link_new(part, target)
        except FileExistsError as e:
            if _etag_of(target) != _etag(data):
                raise ObjectExistsError(f"{target} exists already") from e
        finally:
            part.unlink(missing_ok=True)
        self._sync_parents(path, made)
        return _etag(data)

    def _link_new(self, part: Path, target: Path) -> None:
        """Give the file its name. Raises FileExistsError where the name is taken."""
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError as e:  # the file system has no hard links
            with self._exclusive():
                if target.exists():
                    raise FileExistsError(f"{target} exists already") from e
                part.replace(target)

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        target = self.root / path
        made = self.make_parents(path)
        part = self._write_part(path, data)
        try:
            with self._exclusive():
                found = _etag_of(target)
                if found not in (expected, _etag(data)):
                    raise ObjectChangedError(f"{target} was changed by another writer")
                part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        self._sync_parents(path, made)
        return _etag(data)

    def delete(self, path: str) -> None:
        target = self.root / path
        try:
            target.unlink()
        except FileNotFoundError:
            return
        sync_folder(target.parent)

    def write_unsynced(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        """Put an object whose bytes are durable; its name is durable after `sync_folder`."""
        self._write_part(path, data).replace(self.root / path)

    def make_parents(self, path: str = "") -> list[Path]:
        """Create the folders above a path; returns those that were missing."""
        folder = (self.root / path).parent if path else self.root
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        file_modes.make_folders(folder)
        return missing

    def _sync_parents(self, path: str, made: Iterable[Path]) -> None:
        """Make a path durable. An interrupted write may have created its folders without a sync."""
        parents = (self.root / path).parents
        for folder in parents[: len(parents) - len(self.root.parents)]:
            sync_folder(folder)
        for folder in made:
            if not folder.is_relative_to(self.root) or folder == self.root:
                sync_folder(folder.parent)

    def _write_part(self, path: str, data: Buffer | Iterable[Buffer]) -> Path:
        target = self.root / path
        part = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
        file_modes.make_folders(part.parent)
        chunks = [data] if isinstance(data, Buffer) else data
        try:
            with file_modes.create_file(part) as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # frees the space: the broker may use the same disk
            part.unlink(missing_ok=True)
            raise
        return part

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        """Exclude `replace` by other processes."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def final_path(path: str) -> str | None:
    """The path that an interrupted write was for; None if this is no path of such a write."""
    folder, slash, name = path.rpartition("/")
    found = _PART.fullmatch(name)
    return None if found is None else f"{folder}{slash}{found[1]}"


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _pread(fd: int, start: int, length: int) -> bytes:
    chunks: list[bytes] = []
    while length > 0 and (chunk := os.pread(fd, length, start)):
        chunks.append(chunk)
        start += len(chunk)
        length -= len(chunk)
    return b"".join(chunks)


def _etag(data: Buffer) -> ETag:
    return hashlib.sha256(data).hexdigest()


def _etag_of(path: Path) -> ETag | None:
    try:
        return _etag(path.read_bytes())
    except FileNotFoundError:
        return None


def _unless_missing(error: OSError) -> None:
    """Raise the error: an unreadable folder must not pass for an empty one."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
