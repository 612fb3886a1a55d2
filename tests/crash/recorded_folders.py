"""Records a command's calls on a folder, so that the power can be cut after each of them.

Like `recorded_disk`, for code that uses the operating system's files itself, and folders in
folders. It assumes only what POSIX guarantees: a file's bytes are durable once a sync of that file
has returned, a name once a sync of its folder has. Names may refer to files elsewhere (hard links);
changes of those files are not recorded.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch


@dataclass(eq=False)
class File:
    """A file; or a file elsewhere, with its path."""

    elsewhere: Path | None = None
    last: bytes = b""
    """The content at the last sync."""


@dataclass(eq=False)
class Folder:
    """A folder, with its current names."""

    names: dict[str, File | Folder] = field(default_factory=dict)


Node = File | Folder


class Names(NamedTuple):
    """Names of a folder that changed in one step; None: removed."""

    folder: Folder
    changed: dict[str, Node | None]


class Sync(NamedTuple):
    """A file is durable with these bytes."""

    file: File
    data: bytes


class SyncNames(NamedTuple):
    """All names of a folder are durable."""

    folder: Folder


Operation = Names | Sync | SyncNames


class Recorder:
    """The operations below a folder, which is durable at the start."""

    def __init__(self, root: Path, elsewhere: Path) -> None:
        """`elsewhere`: a folder with files that may be linked to; it may be in the root."""
        self.root = root
        self._outside = elsewhere
        self.operations: list[Operation] = []
        self._elsewhere = {
            path.stat().st_ino: path.relative_to(elsewhere)
            for path in elsewhere.rglob("*")
            if path.is_file()
        }
        self.durable: dict[Node, Any] = {}
        self._files: dict[int, File] = {}
        self.top = self._found(root)

    def _found(self, path: Path) -> Folder:
        folder = Folder()
        for entry in path.iterdir():
            if entry == self._outside:
                continue
            folder.names[entry.name] = self._found(entry) if entry.is_dir() else self._file(entry)
        self.durable[folder] = dict(folder.names)
        return folder

    def _file(self, path: Path) -> File:
        number = path.stat().st_ino
        if number in self._elsewhere:
            return self._files.setdefault(number, File(self._elsewhere[number]))
        file = self._files.setdefault(number, File())
        file.last = self.durable[file] = path.read_bytes()
        return file

    @contextmanager
    def recording(self, without_links: Path | None = None) -> Iterator[None]:
        """Record the calls of this process; one folder may lack support for hard links."""
        self._without_links = without_links
        with ExitStack() as patches:
            for where, name, around in (
                (io, "open", self._open), (os, "open", self._os_open), (os, "mkdir", self._mkdir),
                (os, "link", self._link), (os, "replace", self._rename),
                (os, "unlink", self._remove), (os, "rmdir", self._remove),
                (os, "fsync", self._sync),
            ):  # fmt: skip
                real = getattr(where, name)
                patches.enter_context(patch.object(where, name, _bound(around, real)))
            yield

    # --- calls --------------------------------------------------------------------------------

    def _open(self, real: Any, path: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        opened = real(path, mode, *more, **named)
        if "w" in mode or "x" in mode:
            self._created(path)
        return opened

    def _os_open(self, real: Any, path: Any, flags: int, *more: Any, **named: Any) -> Any:
        opened = real(path, flags, *more, **named)
        if flags & os.O_CREAT:
            self._created(path)
        return opened

    def _mkdir(self, real: Any, path: Any, *more: Any, **named: Any) -> None:
        real(path, *more, **named)
        if (place := self._place(path)) is not None:
            self._change(place[0], {place[1]: Folder()})

    def _link(self, real: Any, source: Any, path: Any) -> None:
        if self._without_links is not None and Path(path).is_relative_to(self._without_links):
            raise PermissionError("there are no hard links here")
        number = Path(source).stat().st_ino
        real(source, path)
        if (place := self._place(path)) is not None:
            inside = self._place(source)
            if inside is not None:
                node: Node = inside[0].names[inside[1]]
            else:
                node = self._files.setdefault(number, File(self._elsewhere[number]))
            self._change(place[0], {place[1]: node})

    def _rename(self, real: Any, source: Any, path: Any, **named: Any) -> None:
        real(source, path, **named)
        place, old = self._place(path), self._place(source)
        if place is not None and old is not None:
            assert place[0] is old[0], "a rename from one folder to another is not modelled"
            self._change(place[0], {old[1]: None, place[1]: old[0].names[old[1]]})

    def _remove(self, real: Any, path: Any, **named: Any) -> None:
        real(path, **named)
        if not named and (place := self._place(path)) is not None:
            self._change(place[0], {place[1]: None})

    def _sync(self, real: Any, fd: int) -> None:
        real(fd)
        path = Path(f"/proc/self/fd/{fd}").readlink()
        place = self._place(path)
        node = self.top if path == self.root else place and place[0].names[place[1]]
        if isinstance(node, Folder):
            self.operations.append(SyncNames(node))
        elif isinstance(node, File):
            node.last = path.read_bytes()
            self.operations.append(Sync(node, node.last))

    # --- names --------------------------------------------------------------------------------

    def _created(self, path: Any) -> None:
        if (place := self._place(path)) is not None and place[1] not in place[0].names:
            self._change(place[0], {place[1]: File()})

    def _place(self, path: Any) -> tuple[Folder, str] | None:
        """The folder of a path, and its name there; None: the path is not below the root."""
        if not isinstance(path, str | Path) or not Path(path).is_relative_to(self.root):
            return None
        if Path(path).is_relative_to(self._outside):
            return None
        *parents, name = Path(path).relative_to(self.root).parts or ("",)
        folder = self.top
        for parent in parents:
            inner = folder.names[parent]
            assert isinstance(inner, Folder)
            folder = inner
        return (folder, name) if name else None

    def _change(self, folder: Folder, changed: dict[str, Node | None]) -> None:
        _rename(folder.names, changed)
        self.operations.append(Names(folder, changed))


def _bound(around: Callable[..., Any], real: Any) -> Callable[..., Any]:
    return lambda *given, **named: around(real, *given, **named)


def _rename(names: dict[str, Node], changed: dict[str, Node | None]) -> None:
    for name, node in changed.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


# --- power cuts -------------------------------------------------------------------------------

FATES = ("lost", "kept", "mixed")
"""The fate of unsynced names; the fate of unsynced bytes is always random."""


class Moment:
    """The durable and the possible state after a number of operations."""

    def __init__(self, recorder: Recorder, operations: int) -> None:
        self._top = recorder.top
        self._data: dict[Node, bytes] = {}
        self._names: dict[Node, dict[str, Node]] = {}
        self._pending: dict[Node, list[dict[str, Node | None]]] = {}
        for node, found in recorder.durable.items():
            if isinstance(node, Folder):
                self._names[node] = dict(found)
            else:
                self._data[node] = found
        for operation in recorder.operations[:operations]:
            match operation:
                case Names(folder, changed):
                    self._pending.setdefault(folder, []).append(changed)
                case Sync(file, data):
                    self._data[file] = data
                case SyncNames(folder):
                    for changed in self._pending.pop(folder, []):
                        _rename(self._names.setdefault(folder, {}), changed)

    def leave(self, root: Path, elsewhere: Path, fate: str, rng: random.Random) -> None:
        """Make the folder as it is after the power cut."""
        self._leave(self._top, root, elsewhere, fate, rng)

    def _leave(
        self, folder: Folder, path: Path, elsewhere: Path, fate: str, rng: random.Random
    ) -> None:
        path.mkdir()
        names = dict(self._names.get(folder, {}))
        for changed in self._pending.get(folder, []):
            if fate == "kept" or (fate == "mixed" and rng.random() < 0.5):
                _rename(names, changed)
        for name, node in names.items():
            if isinstance(node, Folder):
                self._leave(node, path / name, elsewhere, fate, rng)
            elif node.elsewhere is not None:
                (path / name).hardlink_to(elsewhere / node.elsewhere)
            else:
                (path / name).write_bytes(self._bytes(node, rng))

    def _bytes(self, file: File, rng: random.Random) -> bytes:
        """The synced content; any content for a file that was never synced."""
        if file in self._data:
            return self._data[file]
        size = rng.randrange(len(file.last) + 1)
        ends = (b"", bytes(len(file.last) - size), rng.randbytes(len(file.last) - size))
        return file.last[:size] + rng.choice(ends)
