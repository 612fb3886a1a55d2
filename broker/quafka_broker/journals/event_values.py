"""The values of a journal's records, each of which is one event.

A value is the version byte 0x01 and a msgpack array of the event's kind and its fields. Kinds are
numbered in their order. Readers ignore trailing fields that they do not know; kinds and fields are
only ever appended.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import msgpack as untyped_msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

msgpack: Any = untyped_msgpack

_VERSION = b"\x01"

E = TypeVar("E")


class EventValues(Generic[E]):
    """Encodes and decodes the events of one journal, which are named tuples."""

    def __init__(self, *kinds: Any) -> None:
        """`kinds`: the types of events, in the order of their numbers."""
        self._kinds = kinds
        self._numbers = {kind: number for number, kind in enumerate(kinds)}

    def encode(self, event: E, *, without_last: int = 0) -> bytes:
        """Encode an event, without this many of its last fields."""
        fields: Any = event
        fields = fields[: len(fields) - without_last]
        packed: bytes = msgpack.packb((self._numbers[type(event)], *fields))
        return _VERSION + packed

    def decode(self, value: bytes) -> E:
        """Read an event.

        Raises:
            ValueError, TypeError, IndexError: `encode` did not write this value.
        """
        if value[:1] != _VERSION:
            raise ValueError(f"an event of version {value[:1].hex()}")
        values = cast("tuple[Any, ...]", msgpack.unpackb(value[1:], use_list=False))
        kind = self._kinds[values[0]]
        made: E = kind(*values[1 : 1 + len(kind._fields)])
        return made
