"""The bytes of one event of `__quafka_groups`: records' values, distinguished by their first byte.

    0x7B  "{"     the event as JSON, with the metadata and assignments of members in hex; versions
                  before 0x01 wrote it, at any size
    0x01          the event as a msgpack map (see table.py), bytes as they are
    0x02          a part of an event: its number (u32), whether others follow (u8), and a piece of
                  the 0x01 value; big-endian

The parts of an event are consecutive records of one append. An event exists only with all of its
parts, so after a crash it counts as a whole or not at all. Every version reads all three forms;
this one writes 0x01 and 0x02.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import msgpack as untyped_msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from quafka_broker.groups.table import Commit, Event, size_of
from quafka_broker.journals.event_batches import BATCH_BYTES
from quafka_mesh_ops.payloads import bin_header
from quafka_proto.message import Buffer

msgpack: Any = untyped_msgpack

_WHOLE, _PART, _JSON = 0x01, 0x02, ord("{")
_WHOLE_BYTE = bytes((_WHOLE,))
_PART_HEADER = struct.Struct(">BIB")
_PART_BYTES = BATCH_BYTES - _PART_HEADER.size
_ITEMS_AT_ONCE = 100
_LONG_BYTES = 64 << 10
"""A byte string above this size is not copied."""
_SHORT_BYTES = 64 << 10
"""An event up to about this size is encoded in one step."""


def encode(event: Event) -> Iterator[bytes]:
    """An event as record values: one, or its parts. Generates them lazily."""
    if size_of(event) <= _SHORT_BYTES:
        yield _WHOLE_BYTE + _packer.pack(event)
        return
    waiting = bytearray()
    number = 0
    for piece in _pieces(event):
        for at in range(0, len(piece), _PART_BYTES):
            waiting += piece[at : at + _PART_BYTES]
            while len(waiting) > _PART_BYTES:
                yield _PART_HEADER.pack(_PART, number, 1) + waiting[:_PART_BYTES]
                del waiting[:_PART_BYTES]
                number += 1
    yield (_PART_HEADER.pack(_PART, number, 0) if number else b"") + waiting


def _pieces(event: Event) -> Iterator[Buffer]:
    """The 0x01 value, a few items of the event's lists at a time; what members send each other, of
    many MB, is not copied."""
    packer = msgpack.Packer()
    yield _WHOLE_BYTE + packer.pack_map_header(len(event))
    for key, value in event.items():
        yield packer.pack(key)
        if isinstance(value, Commit):
            yield packer.pack_array_header(len(value.offsets))
            items = value.rows()
        elif isinstance(value, list):
            yield packer.pack_array_header(len(cast("list[Any]", value)))
            items = iter(cast("list[Any]", value))
        else:
            yield packer.pack(value)
            continue
        if key == "members":
            for member in items:
                yield from _value_pieces(packer, member)
            continue
        while some := b"".join(map(packer.pack, islice(items, _ITEMS_AT_ONCE))):
            yield some


def _value_pieces(packer: Any, value: Any) -> Iterator[Buffer]:
    """A value; long byte strings in it are pieces of their own, by reference."""
    if isinstance(value, dict) and _is_long(value):
        entries = cast("dict[Any, Any]", value)
        yield packer.pack_map_header(len(entries))
        for key, each in entries.items():
            yield packer.pack(key)
            yield from _value_pieces(packer, each)
    elif isinstance(value, bytes) and _is_long(value):
        yield bin_header(len(value))
        yield memoryview(value)
    else:
        yield packer.pack(value)


def _is_long(value: Any) -> bool:
    """Whether it is, or has, a long byte string."""
    if isinstance(value, dict):
        return any(map(_is_long, cast("dict[Any, Any]", value).values()))
    return isinstance(value, bytes) and len(value) > _LONG_BYTES


def _rows(commit: Commit) -> list[list[Any]]:
    return list(commit.rows())


_packer = msgpack.Packer(default=_rows)


class EventAssembler:
    """Assembles events from the values of consecutive records; holds the parts of one event."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._first = 0

    def feed(self, offset: int, value: bytes) -> tuple[int, Event] | None:
        """The event that this record completes, and the offset at which it begins.

        Incomplete parts, left by a crash or damage, are dropped.

        Raises:
            ValueError, KeyError, TypeError: `encode` did not write this value.
        """
        if value[:1] != bytes((_PART,)):
            self._parts.clear()
            return offset, _decode(value)
        if len(value) < _PART_HEADER.size:
            raise ValueError("a part of an event is cut short")
        _, number, more = _PART_HEADER.unpack_from(value)
        if number == 0:
            self._parts, self._first = [], offset
        elif number != len(self._parts) or offset != self._first + number:
            self._parts.clear()
            return None
        self._parts.append(value[_PART_HEADER.size :])
        if more:
            return None
        whole = b"".join(self._parts)
        self._parts.clear()
        return self._first, _decode(whole)


def _decode(value: bytes) -> Event:
    kind = value[0] if value else None
    if kind == _WHOLE:
        return cast(Event, msgpack.unpackb(memoryview(value)[1:], raw=False))
    if kind == _JSON:
        return _from_hex(cast(Event, json.loads(value)))
    raise ValueError(f"a value of kind {kind}")


def _from_hex(event: Event) -> Event:
    """Convert an event of the JSON form to the present form."""
    for member in event.get("members", ()):
        protocols: dict[str, str] = member["protocols"]
        member["protocols"] = {name: bytes.fromhex(data) for name, data in protocols.items()}
        member["assignment"] = bytes.fromhex(member["assignment"])
    return event
