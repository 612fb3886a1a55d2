"""A store in front of another one: passes every call through one method that subclasses wrap."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from quafka_objects.store import Buffer, ETag, ObjectInfo, ObjectStore, StoredObject

T = TypeVar("T")


class PassingStore(ObjectStore):
    """Passes every call with its kind to `_call`, which makes it at `inner`.

    Kinds: get, list, head, put, stream (a put of chunks, which cannot be repeated), create,
    replace, delete. A listing is complete before its first object is returned.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.where = inner.where

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    @abstractmethod
    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        """Make the call."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._call("get", path, partial(self.inner.read, path, start, length))

    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        return self._call("get", path, partial(self.inner.view, path, start, length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._call("get", path, partial(self.inner.read_ranges, path, ranges))

    def get(self, path: str) -> StoredObject:
        return self._call("get", path, partial(self.inner.get, path))

    def exists(self, path: str) -> bool:
        return self._call("head", path, partial(self.inner.exists, path))

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        yield from self._call("list", folder, lambda: list(self.inner.list_objects(folder, after)))

    def list_folders(self, folder: str) -> list[str]:
        return self._call("list", folder, partial(self.inner.list_folders, folder))

    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        kind = "put" if isinstance(data, Buffer) else "stream"
        self._call(kind, path, partial(self.inner.put, path, data))

    def create(self, path: str, data: Buffer) -> ETag:
        return self._call("create", path, partial(self.inner.create, path, data))

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        return self._call("replace", path, partial(self.inner.replace, path, data, expected))

    def delete(self, path: str) -> None:
        self._call("delete", path, partial(self.inner.delete, path))
