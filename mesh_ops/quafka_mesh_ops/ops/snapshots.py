"""Ops that make a snapshot from another node, 0x50 to 0x55.

The broker takes a cut of its log and pins the files; the node reads the files in pieces and
releases the pin.

0x50 to 0x52 read the whole log, whatever the org in the envelope: its files hold the records of
all orgs side by side, so these ops need the right to snapshot every org. 0x53 to 0x55 read only
the entries of the org in the envelope.

A pin belongs to the node that took it and is invisible to others.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Buffer, Op, OpCode, WireStruct, wire_struct

MAX_READ = 4 << 20


@wire_struct
class PinSnapshotResp(WireStruct):
    """The pin's name, and its description as JSON, as in `pin.json` in the data folder."""

    pin: str
    about: Buffer


@wire_struct
class PinSnapshot(Op[PinSnapshotResp]):
    """Take a cut and pin it. The pin expires `snapshot.pin.lease.ms` after the last read."""

    code = OpCode.PIN_SNAPSHOT


@wire_struct
class ReadPinnedResp(WireStruct):
    """The requested bytes; fewer at the end of the file."""

    data: Buffer


@wire_struct
class ReadPinned(Op[ReadPinnedResp]):
    """Read from a segment's log or index file. `size`: at most `MAX_READ`."""

    code = OpCode.READ_PINNED
    pin: str
    segment: int
    index: bool
    position: int
    size: int


@wire_struct
class UnpinSnapshotResp(WireStruct):
    """The name of the released pin."""

    pin: str


@wire_struct
class UnpinSnapshot(Op[UnpinSnapshotResp]):
    """Release the pin."""

    code = OpCode.UNPIN_SNAPSHOT
    pin: str


@wire_struct
class PinOrg(Op[PinSnapshotResp]):
    """Take a cut of one org: `about` lists only its topics and groups, but every segment."""

    code = OpCode.PIN_ORG


@wire_struct
class ReadOrgPinnedResp(WireStruct):
    """Some of the org's entries, and where the next read starts.

    Attributes:
        rows: the index rows of the entries that begin in this answer, as in the segment.
        entries: the bytes of these entries, in the order of the rows. The last may be cut; it
            continues in the answer to `next_row` and `next_skip`.
        tail: 8 bytes of SHA-256 over the row before the first one and the header of its entry,
            of any org; empty without such a row.
    """

    next_row: int
    next_skip: int
    rows: Buffer
    entries: Buffer
    tail: bytes = b""


@wire_struct
class ReadOrgPinned(Op[ReadOrgPinnedResp]):
    """Read the org's entries of a segment, from the index rows `first_row` up to `end_row`.

    `skip`: bytes to leave out of the first entry. `size`: bytes of entries, at most `MAX_READ`;
    0: only the tail. The broker scans a bounded number of rows, so an answer may be empty.
    """

    code = OpCode.READ_ORG_PINNED
    pin: str
    segment: int
    first_row: int
    end_row: int
    skip: int
    size: int


@wire_struct
class UnpinOrg(Op[UnpinSnapshotResp]):
    """Release the pin."""

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
