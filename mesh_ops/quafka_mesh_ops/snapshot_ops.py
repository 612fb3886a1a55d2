"""The ops with which a snapshot is made from elsewhere, 0x50 to 0x52: the broker takes a cut of its
log and holds the files of it; they are read in pieces, and let go.

They are about the whole log, whatever the org in the envelope. The broker serves them to every
node on its allow-list: each of those may name any org, and so read everything anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.parts import Buffer, Op, OpCode, Part

MAX_READ = 4 << 20


@dataclass(frozen=True, slots=True)
class PinSnapshotResp(Part):
    """The pin's name, and what it holds, as JSON: what `pin.json` has in the data folder."""

    pin: str
    about: Buffer


@dataclass(frozen=True, slots=True)
class PinSnapshot(Op):
    """Take a cut. The pin's lease runs out if nothing is read for ten minutes."""

    code = OpCode.PIN_SNAPSHOT
    response = PinSnapshotResp


@dataclass(frozen=True, slots=True)
class ReadPinnedResp(Part):
    """The bytes that were asked for; fewer at the end of the file."""

    data: Buffer


@dataclass(frozen=True, slots=True)
class ReadPinned(Op):
    """Read a segment's log file, or its index file. `size`: at most `MAX_READ`."""

    code = OpCode.READ_PINNED
    response = ReadPinnedResp
    pin: str
    segment: int
    index: bool
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class UnpinSnapshotResp(Part):
    """Done. `pin`: its name."""

    pin: str


@dataclass(frozen=True, slots=True)
class UnpinSnapshot(Op):
    """Let go of the files."""

    code = OpCode.UNPIN_SNAPSHOT
    response = UnpinSnapshotResp
    pin: str


ALL: tuple[type[Op], ...] = (PinSnapshot, ReadPinned, UnpinSnapshot)
