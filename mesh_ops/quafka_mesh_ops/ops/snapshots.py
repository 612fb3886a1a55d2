"""The ops with which a snapshot is made from elsewhere, 0x50 to 0x55: the broker takes a cut of its
log and holds its files; they are read in pieces, and let go.

There are two sets. 0x50 to 0x52 are about the whole log, whatever the org in the envelope: its
files hold every org's records side by side, so they need the right to snapshot every org. 0x53 to
0x55 are about the org in the envelope: of its files only that org's entries are read.

A pin belongs to the node that took it. To others it does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.ops.base import AnyOp, Buffer, Op, OpCode, WireStruct

MAX_READ = 4 << 20


@dataclass(frozen=True, slots=True)
class PinSnapshotResp(WireStruct):
    """The pin's name, and what it holds, as JSON: what `pin.json` has in the data folder."""

    pin: str
    about: Buffer


@dataclass(frozen=True, slots=True)
class PinSnapshot(Op[PinSnapshotResp]):
    """Take a cut. The pin ends if nothing is read for `snapshot.pin.lease.ms`."""

    code = OpCode.PIN_SNAPSHOT


@dataclass(frozen=True, slots=True)
class ReadPinnedResp(WireStruct):
    """The bytes that were asked for; fewer at the end of the file."""

    data: Buffer


@dataclass(frozen=True, slots=True)
class ReadPinned(Op[ReadPinnedResp]):
    """Read a segment's log file, or its index file. `size`: at most `MAX_READ`."""

    code = OpCode.READ_PINNED
    pin: str
    segment: int
    index: bool
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class UnpinSnapshotResp(WireStruct):
    """Done. `pin`: its name."""

    pin: str


@dataclass(frozen=True, slots=True)
class UnpinSnapshot(Op[UnpinSnapshotResp]):
    """Let go of the files."""

    code = OpCode.UNPIN_SNAPSHOT
    pin: str


@dataclass(frozen=True, slots=True)
class PinOrg(Op[PinSnapshotResp]):
    """Take a cut of one org: `about` lists its topics and groups alone, but every segment."""

    code = OpCode.PIN_ORG


@dataclass(frozen=True, slots=True)
class ReadOrgPinnedResp(WireStruct):
    """Some of the org's entries, and where to go on.

    `rows`: index rows of the entries that begin in this answer, as the segment has them.
    `entries`: their bytes, in the rows' order; the last may be cut, and goes on in the answer to
    `next_row` and `next_skip`. `tail`: 8 bytes of SHA-256 over the row before the first one and
    the header of its entry, whosever it is; empty where there is none.
    """

    next_row: int
    next_skip: int
    rows: Buffer
    entries: Buffer
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class ReadOrgPinned(Op[ReadOrgPinnedResp]):
    """Read the org's entries of a segment, from the index rows `first_row` up to `end_row`.

    `skip`: bytes to leave out of the first entry found. `size`: bytes of entries, at most
    `MAX_READ`; 0: only the tail. Few rows are looked at in one go, so an answer may be empty.
    """

    code = OpCode.READ_ORG_PINNED
    pin: str
    segment: int
    first_row: int
    end_row: int
    skip: int
    size: int


@dataclass(frozen=True, slots=True)
class UnpinOrg(Op[UnpinSnapshotResp]):
    """Let go of the files."""

    code = OpCode.UNPIN_ORG
    pin: str


ALL: tuple[type[AnyOp], ...] = (
    PinSnapshot,
    ReadPinned,
    UnpinSnapshot,
    PinOrg,
    ReadOrgPinned,
    UnpinOrg,
)
