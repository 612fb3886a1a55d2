"""A disk in memory that records every operation, so that the power can be cut at each of them.

It assumes only what POSIX guarantees. Bytes, size and truncations of a file are durable once a sync
of that file that began after them has returned; a created, renamed or removed name is durable once
a sync of the folder has. Any other operation may have happened or not, in any combination, and may
have left wrong bytes: see `fates`.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_broker.wal.disk import Buffer


class Write(NamedTuple):
    """Bytes were put into a file."""

    file: int
    position: int
    data: bytes


class Cut(NamedTuple):
    """A file was truncated."""

    file: int
    size: int


class Sync(NamedTuple):
    """A file's changes before operation number `begun` are durable."""

    file: int
    begun: int


class FailedSync(NamedTuple):
    """The kernel dropped a file's changes so far: no later sync makes them durable."""

    file: int


class Names(NamedTuple):
    """Names that changed in one step: the file that each refers to now; None: it was removed."""

    changed: dict[str, int | None]


class SyncNames(NamedTuple):
    """The folder's changes before operation number `begun` are durable."""

    begun: int


Change = Write | Cut
_NEVER = 1 << 62  # no sync begins after that
Operation = Write | Cut | Sync | FailedSync | Names | SyncNames


@dataclass(eq=False)
class Inode:
    """A file, independent of its name."""

    number: int
    data: bytearray = field(default_factory=bytearray)


class Faults:
    """Injected errors: one in a number of operations fails, as on a full or failing disk.

    After a failed sync, half of the later syncs fail, too.
    """

    def __init__(self, rng: random.Random, full: float = 0.0, sync: float = 0.0) -> None:
        self._rng = rng
        self._full = full
        self._sync = sync
        self.met = 0

    def written(self, size: int) -> int | None:
        """How much of a write fits; None for all of it."""
        if self._rng.random() >= self._full:
            return None
        self.met += 1
        return self._rng.randrange(size + 1)

    def sync_fails(self) -> bool:
        """Whether this sync fails."""
        failed = self._rng.random() < self._sync
        if failed:
            self.met += 1
            self._sync = 0.5
        return failed


class RecordedFile:
    """An open file."""

    def __init__(self, disk: RecordedDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._disk.write(self._inode, b"".join(buffers))

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._inode.data[position : position + size])

    def read_cached(self, position: int, size: int) -> bytearray | None:
        found = self._inode.data[position : position + size]
        return found if len(found) == size else None

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        pass

    def write_back(self) -> None:
        pass

    def sync(self) -> None:
        self._disk.sync(self._inode)

    def truncate(self, size: int) -> None:
        self._disk.cut(self._inode, size)

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        pass


class RecordedDisk:
    """Files in memory. `begin_with` is durable from the start. The log calls it from threads."""

    def __init__(self, begin_with: dict[str, bytes] | None = None) -> None:
        self.faults: Faults | None = None
        self.operations: list[Operation] = []
        self._lock = threading.Lock()
        self._inodes: list[Inode] = []
        self._names: dict[str, Inode] = {}
        self.begun_with = dict(begin_with or {})
        for name, data in self.begun_with.items():
            self._names[name] = self._new(data)

    def create(self, name: str) -> RecordedFile:
        with self._lock:
            if name in self._names:
                raise FileExistsError(errno.EEXIST, "File exists", name)
            inode = self._names[name] = self._new(b"")
            self.operations.append(Names({name: inode.number}))
        return RecordedFile(self, inode)

    def open(self, name: str) -> RecordedFile:
        return RecordedFile(self, self._inode(name))

    def allocate(self, name: str, size: int) -> None:
        with self._lock:
            if name not in self._names:
                inode = self._names[name] = self._new(bytes(size))
                self.operations.append(Names({name: inode.number}))

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._names)

    def exists(self, name: str) -> bool:
        with self._lock:
            return name in self._names

    def remove(self, name: str) -> None:
        with self._lock:
            self._inode(name)
            del self._names[name]
            self.operations.append(Names({name: None}))

    def rename(self, name: str, to: str) -> None:
        with self._lock:
            inode = self._names[to] = self._inode(name)
            del self._names[name]
            self.operations.append(Names({name: None, to: inode.number}))

    def sync_names(self) -> None:
        with self._lock:
            self.operations.append(SyncNames(len(self.operations)))

    def write(self, inode: Inode, data: bytes) -> None:
        """Append to a file: everything, or the part that still fits."""
        with self._lock:
            fits = self.faults.written(len(data)) if self.faults is not None else None
            self.operations.append(Write(inode.number, len(inode.data), data[:fits]))
            inode.data += data[:fits]
        if fits is not None:
            raise OSError(errno.ENOSPC, "No space left on device")

    def cut(self, inode: Inode, size: int) -> None:
        """Truncate a file."""
        with self._lock:
            self.operations.append(Cut(inode.number, size))
            del inode.data[size:]

    def sync(self, inode: Inode) -> None:
        """Make a file durable; or fail, which leaves its state unknown."""
        if self.faults is not None and self.faults.sync_fails():
            with self._lock:
                self.operations.append(FailedSync(inode.number))
            raise OSError(errno.EIO, "Input/output error")
        with self._lock:
            self.operations.append(Sync(inode.number, len(self.operations)))

    def files(self) -> dict[str, bytes]:
        """The current files."""
        with self._lock:
            return {name: bytes(inode.data) for name, inode in self._names.items()}

    def _new(self, data: bytes) -> Inode:
        inode = Inode(len(self._inodes), bytearray(data))
        self._inodes.append(inode)
        return inode

    def _inode(self, name: str) -> Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return self._names[name]


@dataclass
class Moment:
    """The state of the disk after some operations: durable changes, and possible ones."""

    operations: int
    durable: dict[int, bytes]
    pending: dict[int, list[tuple[int, Change]]]
    names: dict[str, int]
    pending_names: list[tuple[int, Names]]


def moments(disk: RecordedDisk) -> Iterator[Moment]:
    """The disk after each operation, from none on. It is one object, which advances."""
    start = disk.begun_with
    now = Moment(
        0,
        dict(enumerate(start.values())),
        {number: [] for number in range(len(start))},
        {name: number for number, name in enumerate(start)},
        [],
    )
    yield now
    for at, operation in enumerate(disk.operations):
        _apply(now, at, operation)
        now.operations = at + 1
        yield now


def _apply(now: Moment, at: int, operation: Operation) -> None:
    match operation:
        case Write() | Cut():
            now.pending.setdefault(operation.file, []).append((at, operation))
        case Sync(file, begun):
            data = bytearray(now.durable.get(file, b""))
            left: list[tuple[int, Change]] = []
            for when, change in now.pending.get(file, []):
                if when < begun:
                    put(data, change)
                    left = [later for later in left if not _undoes(change, later[1])]
                else:
                    left.append((when, change))
            now.pending[file] = left
            now.durable[file] = bytes(data)
        case FailedSync(file):
            now.pending[file] = [(_NEVER, change) for _, change in now.pending.get(file, [])]
        case Names():
            now.pending_names.append((at, operation))
        case SyncNames(begun):
            while now.pending_names and now.pending_names[0][0] < begun:
                rename(now.names, now.pending_names.pop(0)[1])


def _undoes(cut: Change, given_up: Change) -> bool:
    """Whether a durable truncation removes all of a change that the kernel has dropped."""
    if not isinstance(cut, Cut):
        return False
    return isinstance(given_up, Cut) or given_up.position >= cut.size


def put(data: bytearray, change: Change) -> None:
    """Apply a change to a file's bytes; a gap that a lost earlier change leaves is zeros."""
    if isinstance(change, Cut):
        data.extend(bytes(max(0, change.size - len(data))))
        del data[change.size :]
        return
    data.extend(bytes(max(0, change.position - len(data))))
    data[change.position : change.position + len(change.data)] = change.data


def rename(names: dict[str, int], change: Names) -> None:
    """Apply a change to a folder."""
    for name, inode in change.changed.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
