"""The allow-list: nodes that may connect, and their rights, from the settings and from a file.

The file holds one entry per line (grants.py has the syntax); `#` begins a comment. A running
program rereads it periodically and applies changes at once, also to open connections. A damaged or
missing file changes nothing: the last valid list stays in force.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quafka_mesh_ops.grants import AllowListEntry, Grant, by_node, parse_entry
from quafka_mesh_ops.identity import replace_file
from quafka_mesh_ops.node_ids import NodeId
from quafka_telemetry.startup import StartupError

logger = logging.getLogger("quafka.mesh")

POLL_SECONDS = 0.3
_MAX_FILE = 4 << 20


class AllowList(Collection[NodeId]):
    """The node ids that may connect now, with their grants."""

    def __init__(self, fixed: Iterable[str], path: Path | None = None) -> None:
        """`fixed`: entries that are always in force; `path`: the file with further ones.

        Raises:
            StartupError: the file cannot be read, or is damaged.
            ValueError: one of `fixed` is not an entry.
        """
        self._fixed = tuple(map(parse_entry, fixed))
        self._trusted: tuple[AllowListEntry, ...] = ()
        self._path = path
        self._changed: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._problem = ""
        self._content = b""
        self._grants = by_node(self._fixed)
        if path is not None:
            try:
                self._content = _read(path)
                self._grants = by_node((*self._fixed, *parse(self._content)))
            except (OSError, ValueError) as e:
                raise StartupError(f"cannot use the allow-list {path}: {_reason(e)}") from e

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._grants

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._grants)

    def __len__(self) -> int:
        return len(self._grants)

    def grant(self, node_id: NodeId) -> Grant:
        """Return the current grant of a node; empty if it is not on the list."""
        return self._grants.get(node_id, ())

    def trust(self, entries: Iterable[str]) -> None:
        """Replace the entries that are in force besides those of the settings and the file.

        Raises:
            ValueError: one of them is not an entry.
        """
        trusted = tuple(map(parse_entry, entries))
        if trusted != self._trusted:
            self._trusted = trusted
            self._grants = by_node((*self._fixed, *trusted, *parse(self._content)))
            if self._changed is not None:
                self._changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Follow the file from now on; `changed` is called after each change of the list."""
        self._changed = changed
        if self._path is not None:
            self._task = asyncio.get_running_loop().create_task(self._follow(self._path))
            self._task.add_done_callback(_log_failure)

    async def check(self) -> None:
        """Read the file now, and apply it."""
        if self._path is not None:
            self._update(self._path, await _look_at(self._path))

    async def close(self) -> None:
        """Stop following the file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, path: Path) -> None:
        before: bytes | str = self._content
        while True:
            await asyncio.sleep(POLL_SECONDS)
            found = await _look_at(path)
            # An editor may be writing the file: content is valid once it was read twice.
            if found == before:
                self._update(path, found)
            before = found

    def _update(self, path: Path, found: bytes | str) -> None:
        """Apply the content of the file, or log the reason (str) for its absence."""
        if isinstance(found, bytes):
            if found == self._content:
                self._problem = ""
                return
            try:
                grants = by_node((*self._fixed, *self._trusted, *parse(found)))
            except ValueError as e:
                found = str(e)
            else:
                self._accept(path, found, grants)
                return
        if found != self._problem:
            self._problem = found
            logger.error("the allow-list %s: %s; the last valid list stays in force", path, found)

    def _accept(self, path: Path, content: bytes, grants: dict[NodeId, Grant]) -> None:
        before = self._grants
        added, gone = len(grants.keys() - before.keys()), len(before.keys() - grants.keys())
        changed = sum(grants[node] != before[node] for node in grants.keys() & before.keys())
        self._content, self._grants, self._problem = content, grants, ""
        logger.info(
            "the allow-list %s: %d added, %d revoked, %d changed", path, added, gone, changed
        )
        if self._changed is not None and (added or gone or changed):
            self._changed()


def parse(content: bytes) -> tuple[AllowListEntry, ...]:
    """Parse a file's content.

    Raises:
        ValueError: a line is neither an entry, a comment nor blank.
    """
    text = content.decode(errors="replace")
    return tuple(entry for _, entry in _lines(text) if entry is not None)


def allow(path: Path, entry: AllowListEntry, *, replace: bool = True) -> bool:
    """Add an entry to the list in this file, which is created if missing.

    Returns whether the file changed. The entry replaces the node's other entries; with `replace`
    off, a node with entries keeps them.

    Raises:
        OSError, ValueError: the file cannot be read or written, or is damaged.
    """
    with _changing(path) as real:
        content = _read(real).decode() if real.exists() else ""
        lines = list(_lines(content))
        known = [found for _, found in lines if found and found.node_id == entry.node_id]
        if known == [entry] or (known and not replace):
            return False
        if known:
            _write(real, "".join(_replaced(lines, entry)))
            return True
        gap = "" if not content or content.endswith("\n") else "\n"
        _write(real, f"{content}{gap}{entry}\n")
    return True


def _replaced(
    lines: list[tuple[str, AllowListEntry | None]], entry: AllowListEntry
) -> Iterator[str]:
    """Yield the lines with `entry` instead of the node's first entry, whose comment stays."""
    done = False
    for line, found in lines:
        if found is None or found.node_id != entry.node_id:
            yield line
        elif not done:
            done = True
            _, mark, comment = line.partition("#")
            yield f"{entry}  #{comment}" if mark else f"{entry}\n"


def revoke(path: Path, node_id: NodeId) -> bool:
    """Remove a node and all its lines from the list in this file; False: it has none.

    Raises:
        OSError, ValueError: as `allow`, or the file is missing.
    """
    with _changing(path) as real:
        lines = list(_lines(_read(real).decode()))
        kept = [line for line, found in lines if found is None or found.node_id != node_id]
        if len(kept) == len(lines):
            return False
        _write(real, "".join(kept))
    return True


def _lines(text: str) -> Iterator[tuple[str, AllowListEntry | None]]:
    """Yield each line and its entry. Raises ValueError."""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        words = line.partition("#")[0].strip()
        try:
            yield line, parse_entry(words) if words else None
        except ValueError as e:
            raise ValueError(f"line {number}: {e}") from e


async def _look_at(path: Path) -> bytes | str:
    """The content of the file, or the reason (str) for its absence."""
    try:
        return await asyncio.to_thread(_read, path)
    except (OSError, ValueError) as e:
        return _reason(e)


def _read(path: Path) -> bytes:
    """Read the file. Raises OSError, ValueError."""
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        content = file.read(_MAX_FILE + 1)
    if mode & stat.S_IWOTH:
        raise ValueError(f"every user may write it (mode {mode:04o}): run chmod o-w on it")
    if len(content) > _MAX_FILE:
        raise ValueError(f"it is larger than {_MAX_FILE} bytes")
    return content


def _write(path: Path, text: str) -> None:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    replace_file(path, text.encode(), mode)


@contextmanager
def _changing(path: Path) -> Generator[Path]:
    """Resolve `path` and hold an advisory lock against concurrent changes of the file."""
    real = path.resolve()
    folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield real
    finally:
        os.close(folder)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the end of the task, which only a bug causes: revocations no longer take effect."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("the allow-list file is no longer followed", exc_info=task.exception())
