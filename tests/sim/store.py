"""An object store in memory, and the network between it and each node.

An operation takes effect at one moment, and a read after it sees it, as in S3. What goes wrong is
in `StoreTrouble`; calls block the fiber of the caller.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from quafka_objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    TransientStoreError,
)
from quafka_objects.passing import PassingStore
from quafka_objects.store import Buffer, ETag, ObjectInfo, ObjectStore, StoredObject
from tests.support.virtual.hub import Hub, Node

T = TypeVar("T")

_SIGMA = 0.4
_WRITES = frozenset(("put", "stream", "create", "replace", "delete"))
_DEADLINE_SECONDS = 5.0
"""After that, a caller gives a request up that nobody answers."""
_LATEST_SECONDS = 8.0
"""How long a lost write may be under way."""


class Objects(ObjectStore):
    """The store itself."""

    where = "s3://simulated"

    def __init__(self) -> None:
        self._objects: dict[str, StoredObject] = {}
        self.writes = 0

    @property
    def is_remote(self) -> bool:
        return True

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = self.get(path).data
        return data[start:] if length is None else data[start : start + length]

    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        return memoryview(self.read(path, start, length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(path, start, length) for start, length in ranges]

    def get(self, path: str) -> StoredObject:
        if path not in self._objects:
            raise ObjectNotFoundError(path)
        return self._objects[path]

    def exists(self, path: str) -> bool:
        return path in self._objects

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        prefix = f"{folder}/" if folder else ""
        for path, found in sorted(self._objects.items()):
            if path.startswith(prefix) and path > after:
                yield ObjectInfo(path, len(found.data))

    def list_folders(self, folder: str) -> list[str]:
        start = len(folder) + 1 if folder else 0
        paths = (each.path[start:] for each in self.list_objects(folder))
        return sorted({path.partition("/")[0] for path in paths if "/" in path})

    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        self._put(path, bytes(data) if isinstance(data, Buffer) else b"".join(data))

    def create(self, path: str, data: Buffer) -> ETag:
        found = self._objects.get(path)
        if found is None:
            return self._put(path, bytes(data))
        if found.data != bytes(data):
            raise ObjectExistsError(path)
        return found.etag

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        found = self._objects.get(path)
        if found is None or found.etag != expected:
            if found is not None and found.data == bytes(data):
                return found.etag
            raise ObjectChangedError(path)
        return self._put(path, bytes(data))

    def delete(self, path: str) -> None:
        self._objects.pop(path, None)

    def _put(self, path: str, data: bytes) -> ETag:
        self.writes += 1
        self._objects[path] = StoredObject(data, str(self.writes))
        return self._objects[path].etag


@dataclass
class StoreTrouble:
    """How bad the store is now; shares of all requests.

    Attributes:
        median_s: half of the requests take longer.
        busy: refused (503 SlowDown), without effect.
        lost: have their effect, but the answer is lost.
        late: fail at the caller, and take effect some seconds after that.
        down: nobody answers.
        away: the names of the machines that get no answer.
    """

    median_s: float = 0.006
    busy: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    down: bool = False
    away: set[str] = field(default_factory=set[str])

    def is_silent(self, name: str) -> bool:
        """Whether a machine gets no answer."""
        return self.down or name in self.away


class SimulatedStore(PassingStore):
    """The store as one node sees it."""

    def __init__(
        self,
        objects: Objects,
        hub: Hub,
        node: Node | None,
        random: Random,
        trouble: StoreTrouble,
        note: Callable[..., None],
    ) -> None:
        super().__init__(objects)
        self._hub = hub
        self._node = node
        self._random = random
        self._trouble = trouble
        self._note = note

    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        trouble, hub, random = self._trouble, self._hub, self._random
        name = self._node.name if self._node else ""
        self._note("store", name, kind, path)
        fate = random.random()
        if trouble.is_silent(name):
            hub.sleep(_DEADLINE_SECONDS)
            raise TransientStoreError(f"{self.where}/{path}: no answer")
        hub.sleep(self._seconds())
        if fate < trouble.busy:
            raise TransientStoreError(f"{self.where}/{path}: 503 Slow Down")
        if kind in _WRITES and fate < trouble.busy + trouble.late:
            hub.call_later(random.uniform(0, _LATEST_SECONDS), _late, call)
            hub.sleep(random.choice((0.0, _DEADLINE_SECONDS)))
            raise TransientStoreError(f"{self.where}/{path}: the connection was lost")
        try:
            found = call()
        finally:
            hub.sleep(self._seconds())
        if fate < trouble.busy + trouble.late + trouble.lost:
            raise TransientStoreError(f"{self.where}/{path}: the answer was lost")
        return found

    def _seconds(self) -> float:
        return self._random.lognormvariate(math.log(self._trouble.median_s / 2), _SIGMA)


def _late(call: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):  # its condition is not met any more
        call()
