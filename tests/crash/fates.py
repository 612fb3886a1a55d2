"""The possible states of unsynced data after a power cut.

A fate decides about each unsynced change: the change may be dropped, kept or torn, may keep its
size and lose its bytes, may lose some sectors, may have flipped bits, or may be replaced by data
from another place of the file.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.crash.recorded_disk import Change, Cut, Moment, RecordedDisk, Write, put, rename

Damage = Callable[[random.Random, bytes, bytearray], tuple[bytes, int]]
"""From the write and the file so far: the bytes found there, and how many of them count."""


def _keep(_rng: random.Random, data: bytes, _file: bytearray) -> tuple[bytes, int]:
    return data, len(data)


def _tear(rng: random.Random, data: bytes, _file: bytearray) -> tuple[bytes, int]:
    return data, rng.randrange(len(data) + 1)


def _zero(_rng: random.Random, data: bytes, _file: bytearray) -> tuple[bytes, int]:
    return bytes(len(data)), len(data)


def _sectors(rng: random.Random, data: bytes, _file: bytearray) -> tuple[bytes, int]:
    """Some sectors arrived, others did not. Sectors are smaller than real ones: a worse case."""
    sector = rng.choice((16, 64, 512))
    left = bytearray(data)
    for start in range(0, len(left), sector):
        if rng.random() < 0.5:
            left[start : start + sector] = bytes(len(left[start : start + sector]))
    return bytes(left), len(left)


def _flip(rng: random.Random, data: bytes, _file: bytearray) -> tuple[bytes, int]:
    left = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        if left:
            left[rng.randrange(len(left))] ^= 1 << rng.randrange(8)
    return bytes(left), len(left)


def _garbage(rng: random.Random, data: bytes, _file: bytearray) -> tuple[bytes, int]:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(len(data) - start), len(data)


def _stale(rng: random.Random, data: bytes, file: bytearray) -> tuple[bytes, int]:
    """Blocks from another place of the same file, which may hold valid old entries."""
    start = rng.randrange(len(file) + 1)
    old = bytes(file[start : start + len(data)])
    return old + data[len(old) :], len(data)


DAMAGES: dict[str, Damage] = {
    "kept": _keep,
    "torn": _tear,
    "zeroed": _zero,
    "sectors": _sectors,
    "flipped": _flip,
    "garbage": _garbage,
    "stale": _stale,
}


class Fate:
    """One possible outcome. `kind` names it, `rng` decides the details."""

    def __init__(self, kind: str, rng: random.Random) -> None:
        self.kind = kind
        self._rng = rng

    def name_survives(self) -> bool:
        """Whether an unsynced change of the folder survives."""
        if self.kind in ("lost", "names lost"):
            return False
        return self.kind != "mixed" or self._rng.random() < 0.5

    def damage(self, name: str, change: Change) -> Damage | None:
        """The surviving form of a change; None: it never happened."""
        kind = self.kind
        if kind == "mixed":
            kind = self._rng.choice(("lost", *DAMAGES))
        elif kind == "log only":
            kind = "kept" if name.endswith(".log") else "lost"
        elif kind == "all but the log":
            kind = "lost" if name.endswith(".log") else "kept"
        elif kind == "last change only":
            kind = "kept"
        if isinstance(change, Cut):
            return _keep if kind not in ("lost", "cuts lost") else None
        return None if kind == "lost" else DAMAGES.get(kind, _keep)

    def only_last(self) -> bool:
        """Whether later writes overtook all earlier ones."""
        return self.kind == "last change only"


KINDS = (
    "lost",
    "kept",
    "torn",
    "zeroed",
    "sectors",
    "flipped",
    "garbage",
    "stale",
    "log only",
    "all but the log",
    "last change only",
    "cuts lost",
    "names lost",
    "mixed",
)


def after_power_cut(moment: Moment, fate: Fate, rng: random.Random) -> RecordedDisk:
    """The disk after the power cut."""
    names = dict(moment.names)
    for _, renamed in moment.pending_names:
        if fate.name_survives():
            rename(names, renamed)
    files: dict[str, bytes] = {}
    for name, number in names.items():
        data = bytearray(moment.durable.get(number, b""))
        changes = [change for _, change in moment.pending.get(number, [])]
        for change in changes[-1:] if fate.only_last() else changes:
            _settle(data, change, fate.damage(name, change), rng)
        files[name] = bytes(data)
    return RecordedDisk(files)


def _settle(data: bytearray, change: Change, damage: Damage | None, rng: random.Random) -> None:
    if damage is None:
        return
    if isinstance(change, Cut):
        put(data, change)
        return
    found, count = damage(rng, change.data, data)
    put(data, Write(change.file, change.position, found[:count]))
