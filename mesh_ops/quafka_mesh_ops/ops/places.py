"""Records by place: where record batches are, instead of their bytes, and the op that begins it.

A reader on the broker's host can read the log's files itself. The op OPEN_PLACES (0x32) names the
unix socket over which the broker hands it their descriptors (`quafka_mesh_ops.descriptors`).

A reader anywhere can read the objects of a log in an object store, if it has access to the store.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct

_EXTENT = struct.Struct(">QIQI")


class Extent(NamedTuple):
    """One record batch of an object: its place in bytes, and its offsets."""

    position: int
    length: int
    base_offset: int
    offsets: int

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.offsets


@wire_struct
class ObjectPlace(WireStruct):
    """Record batches in one immutable object, in the order of their offsets.

    Attributes:
        key: the object. Keys of a log's files are made by `file_key`; the key of an object of a
            store is its path, which has a slash.
        extents: the batches, 24 bytes each: position (8), length (4), base offset (8), number of
            offsets (4), big-endian.
    """

    key: str
    extents: bytes

    @property
    def is_in_store(self) -> bool:
        """Whether the object is in the broker's store."""
        return "/" in self.key


def file_key(number: int, salt: int) -> str:
    """The key of a segment's log file. A rewritten segment has another salt."""
    return f"{number:012d}-{salt:08x}"


def pack_extents(extents: Iterable[tuple[int, int, int, int]]) -> bytes:
    """The wire form of extents."""
    return b"".join([_EXTENT.pack(*extent) for extent in extents])


def unpack_extents(data: bytes) -> list[Extent]:
    """The extents of a place.

    Raises:
        ProtocolError: cut short, an empty batch, or offsets that do not ascend.
    """
    if not data or len(data) % _EXTENT.size:
        raise ProtocolError("the extents of a place are cut short")
    found = [Extent(*values) for values in _EXTENT.iter_unpack(data)]
    offset = 0
    for extent in found:
        if not extent.length or not extent.offsets or extent.base_offset < offset:
            raise ProtocolError("the extents of a place contradict each other")
        offset = extent.end_offset
    return found


def extents_of(places: Iterable[ObjectPlace] | None) -> list[Extent]:
    """The extents of all places. Raises ProtocolError."""
    return [extent for place in places or () for extent in unpack_extents(place.extents)]


@wire_struct
class OpenPlacesResp(WireStruct):
    """Where the broker hands over descriptors.

    Attributes:
        folder: the folder of the socket on the broker's host; empty: records go by value only.
        token: proves once, within seconds, that the node at the socket is the node of this op.
    """

    folder: str
    token: bytes = b""


@wire_struct
class OpenPlaces(Op[OpenPlacesResp]):
    """Request the broker's socket for descriptors, and a token for one connection to it."""

    code = OpCode.OPEN_PLACES
    reads = True


ALL: tuple[type[AnyOp], ...] = (OpenPlaces,)
