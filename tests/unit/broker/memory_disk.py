"""A disk in memory that can fail, and can lose unsynced data as in a power cut."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quafka_broker.wal.disk import Buffer

SECTOR = 64
"""The unit that reaches the disk as a whole or not at all."""


@dataclass(eq=False)
class MemoryFile:
    """A file: its data, and the part that is known to survive."""

    disk: MemoryDisk
    name: str
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""

    def append(self, buffers: Sequence[Buffer]) -> None:
        whole = b"".join(buffers)
        room = self.disk.room
        if room is not None and room < len(whole):
            self.data += whole[:room]
            self.disk.room = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        if room is not None:
            self.disk.room = room - len(whole)
        self.data += whole
        self.disk.did("append", self.name)

    def read(self, position: int, size: int) -> bytes:
        if self.disk.unreadable:
            raise OSError(errno.EIO, "Input/output error")
        return bytes(self.data[position : position + size])

    def read_cached(self, position: int, size: int) -> bytearray | None:
        if not self.disk.cached:
            return None
        return bytearray(self.read(position, size))

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        pass

    def write_back(self) -> None:
        pass

    def sync(self) -> None:
        if self.disk.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        self.durable = bytes(self.data)
        self.disk.did("sync", self.name)

    def truncate(self, size: int) -> None:
        if self.disk.truncate_fails:
            raise OSError(errno.EIO, "Input/output error")
        del self.data[size:]
        self.disk.did("truncate", self.name)

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None:
        pass


Survives = Callable[[str, int], bool]
"""Whether an unsynced sector of a file reached the disk."""


@dataclass(frozen=True)
class Snapshot:
    """All files after one operation: data, the synced part of it, and the synced names."""

    files: dict[str, tuple[bytes, bytes]]
    synced_names: frozenset[str]

    def after_power_cut(self, survives: Survives, size_survives: bool) -> MemoryDisk:
        """The disk after the power cut."""
        disk = MemoryDisk()
        for name, (data, durable) in self.files.items():
            if name not in self.synced_names and not size_survives:
                continue
            left = bytearray(durable)
            if size_survives:
                left = (left + bytes(max(0, len(data) - len(left))))[: len(data)]
            for start in range(0, len(left), SECTOR):
                new = data[start : start + SECTOR][: len(left) - start]
                if new and survives(name, start // SECTOR):
                    left[start : start + len(new)] = new
            disk.put(name, bytes(left))
        return disk


class MemoryDisk:
    """Files in memory. `record` keeps a snapshot after every operation."""

    def __init__(self, *, record: bool = False) -> None:
        self.files: dict[str, MemoryFile] = {}
        self.cached = True
        self.unreadable = False
        self.sync_fails = False
        self.truncate_fails = False
        self.room: int | None = None
        self.done: list[tuple[str, str]] = []
        self.snapshots: list[Snapshot] = []
        self._record = record
        self._synced_names: frozenset[str] = frozenset()

    def did(self, what: str, name: str) -> None:
        self.done.append((what, name))
        if self._record:
            files = {f.name: (bytes(f.data), f.durable) for f in self.files.values()}
            self.snapshots.append(Snapshot(files, self._synced_names))

    def put(self, name: str, data: bytes) -> None:
        """A durable file, as if written long ago."""
        self.files[name] = MemoryFile(self, name, bytearray(data), data)
        self._synced_names |= {name}

    def copy(self) -> MemoryDisk:
        """Another disk with the same content."""
        other = MemoryDisk()
        for file in self.files.values():
            other.put(file.name, bytes(file.data))
        return other

    def crashed(self) -> MemoryDisk:
        """Another disk with the same content, except checkpoints: the log was never closed."""
        other = self.copy()
        for name in [name for name in other.files if name.startswith("checkpoint")]:
            del other.files[name]
        return other

    def syncs(self, suffix: str = ".log") -> int:
        """How often files of that kind have been synced."""
        return sum(what == "sync" and name.endswith(suffix) for what, name in self.done)

    def create(self, name: str) -> MemoryFile:
        if name in self.files:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        file = self.files[name] = MemoryFile(self, name)
        self.did("create", name)
        return file

    def open(self, name: str) -> MemoryFile:
        return self.files[name]

    def names(self) -> list[str]:
        return sorted(self.files)

    def exists(self, name: str) -> bool:
        return name in self.files

    def remove(self, name: str) -> None:
        if self.room is not None:
            self.room += self.files[name].size()
        del self.files[name]
        self.did("remove", name)

    def rename(self, name: str, to: str) -> None:
        file = self.files.pop(name)
        file.name = to
        self.files[to] = file
        self.did("rename", to)

    def allocate(self, name: str, size: int) -> None:
        if name in self.files:
            return
        if self.room is not None:
            if self.room < size:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= size
        self.files[name] = MemoryFile(self, name, bytearray(size))
        self.did("create", name)

    def sync_names(self) -> None:
        self._synced_names = frozenset(self.files)
        self.did("sync_names", "")
