"""Where snapshots are: a folder that every executor sees, or an object store.

Paths are relative to the DEST that `quafka snapshot create` was given. An object store is reached
by obstore (`quafka[s3]`), which takes its credentials from the environment, the machine's role, or
the reader's options that begin with `s3.`.
"""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import numpy as np

from pyspark_quafka.errors import QuafkaError, QuafkaOptionError
from quafka_proto.varints import Bytes

_OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss")


class Store(ABC):
    """Files under one path. What is read never changes; FileNotFoundError where it is not there."""

    where: str
    """The path or URL, for people."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """What is directly in a folder; nothing where there is no such folder."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> Bytes:
        """A range of a file, as long as the file goes; all that follows `start` by default."""

    @abstractmethod
    def write(self, path: str, data: bytes | memoryview) -> None:
        """Make a file or write over it, at once and durably: nobody ever sees a part of it."""

    @property
    @abstractmethod
    def far(self) -> bool:
        """Whether a read costs a round trip: then gaps are better read than skipped."""


def open_store(path: str, options: Mapping[str, str] | None = None) -> Store:
    """The store at a path or URL."""
    url = urlsplit(path)
    if url.scheme in _OBJECT_STORES:
        return _Objects(path.replace("s3a://", "s3://", 1), dict(options or {}))
    if url.scheme == "file":
        if url.netloc not in ("", "localhost"):
            raise QuafkaOptionError(f"cannot read {path}: three slashes, as in file:///folder")
        return _Folder(Path(unquote(url.path)))
    if url.scheme and "://" in path:
        allowed = ", ".join(f"{scheme}://" for scheme in _OBJECT_STORES)
        raise QuafkaOptionError(f"cannot read {path}: a path, file:// or one of {allowed}")
    return _Folder(Path(path))


class _Folder(Store):
    def __init__(self, root: Path) -> None:
        self._root = root
        self.where = str(root)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []
        except NotADirectoryError as e:
            raise QuafkaError(f"{self._root} is no folder of snapshots") from e

    def exists(self, path: str) -> bool:
        return (self._root / path).is_file()

    def read(self, path: str, start: int = 0, length: int | None = None) -> Bytes:
        """Mapped, not copied."""
        with (self._root / path).open("rb") as file:
            size = file.seek(0, 2)
            end = size if length is None else min(size, start + length)
            if end <= start:
                return np.zeros(0, np.uint8)
            skipped = start % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(
                file.fileno(),
                end - start + skipped,
                access=mmap.ACCESS_READ,
                offset=start - skipped,
            )
        return np.frombuffer(mapped, np.uint8)[skipped:]

    def write(self, path: str, data: bytes | memoryview) -> None:
        target = self._root / path
        missing = [each for each in target.parents if not each.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # of a full disk nothing is kept
            part.unlink(missing_ok=True)
            raise
        part.replace(target)
        for made in (target, *missing):
            _sync_folder(made.parent)

    @property
    def far(self) -> bool:
        return False


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Objects(Store):
    """An object store."""

    def __init__(self, url: str, options: dict[str, str]) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError as e:
            raise QuafkaOptionError(f"{url} needs obstore: pip install 'quafka[s3]'") from e
        endpoint = options.get("endpoint") or os.environ.get(
            "AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")
        )
        self.where = url
        self._calls = obstore
        self._client = from_url(
            url,
            config=cast("Any", options),
            client_options={"allow_http": endpoint.startswith("http://")},
        )

    def names(self, folder: str) -> list[str]:
        with self._told(folder):
            found = self._calls.list_with_delimiter(self._client, f"{folder}/")
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    def exists(self, path: str) -> bool:
        try:
            with self._told(path):
                self._calls.head(self._client, path)
        except FileNotFoundError:
            return False
        return True

    def read(self, path: str, start: int = 0, length: int | None = None) -> Bytes:
        if length == 0:
            return np.zeros(0, np.uint8)
        with self._told(path):
            if length is None:
                data = bytes(self._calls.get(self._client, path).bytes())[start:]
            else:
                data = bytes(self._calls.get_range(self._client, path, start=start, length=length))
        return np.frombuffer(data, np.uint8)

    def write(self, path: str, data: bytes | memoryview) -> None:
        with self._told(path):
            self._calls.put(self._client, path, bytes(data))

    @contextmanager
    def _told(self, path: str) -> Generator[None]:
        """Errors that say where."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as e:
            raise FileNotFoundError(f"there is no {self.where}/{path}") from e
        except BaseError as e:
            raise QuafkaError(f"{self.where}/{path}: {e}") from e

    @property
    def far(self) -> bool:
        return True
