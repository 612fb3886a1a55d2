"""Writes requests from their schemas as no client would: any size, any count, any length.

It shares nothing with the product's encoder, which refuses what is written here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quafka_proto.message import Field, Message, Struct

_LENGTHS = ("array", "string", "bytes", "records")


def uvarint(value: int) -> bytes:
    """As in KIP-482."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass(slots=True)
class Writer:
    """One request body.

    Attributes:
        sizes: of strings and bytes in bytes, of arrays in items, by path ("topics.partitions");
            1 where none is given. The items of an array of strings are at "topics[]".
        values: of fields with a fixed width, by path, where not the default.
        forge: the number of the length to replace, in the order of writing; -1: none.
        forged: what stands there instead of the length.
    """

    version: int
    flexible: bool
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    values: dict[str, object] = field(default_factory=dict[str, object])
    forge: int = -1
    forged: Callable[[int], int] = lambda true: true
    lengths: int = 0
    """How many have been written."""

    def struct(self, owner: type[Struct], path: str = "", number: int = 0) -> bytes:
        """A struct with all fields that the version has; tagged ones are left out."""
        out = bytearray()
        for name, one in owner.FIELDS.items():
            if self.version in one.versions and one.tag is None:
                out += self._value(one, f"{path}.{name}" if path else name, number)
        if self.flexible:
            out.append(0)
        return bytes(out)

    def _value(self, one: Field, path: str, number: int) -> bytes:
        if one.kind == "struct":
            present = b"\1" if self.version in one.nullable else b""
            return present + self.struct(one.element, path, number)
        if one.kind not in _LENGTHS:
            value: Any = self.values.get(path, one.fresh_default())
            return struct.pack(f">{one.kind}", value)
        size = self.sizes.get(path, 1)
        head = self._length(size, wide=one.kind != "string")
        if one.kind == "array":
            inner = path if one.element.kind == "struct" else f"{path}[]"
            return head + b"".join(self._value(one.element, inner, n) for n in range(size))
        if one.kind == "string" and size == 1 and number:
            # Names differ, or there would be one topic asked for many times.
            text = b"%07d" % number
            return self._again(one, len(text)) + text
        return head + (b"a" if one.kind == "string" else b"\0") * size

    def _again(self, one: Field, size: int) -> bytes:
        self.lengths -= 1
        return self._length(size, wide=one.kind != "string")

    def _length(self, true: int, *, wide: bool) -> bytes:
        mine = self.lengths == self.forge
        self.lengths += 1
        value = self.forged(true) if mine else true
        if self.flexible:
            return uvarint(value + 1)
        return struct.pack(">i", value) if wide else struct.pack(">h", min(value, (1 << 15) - 1))


def request(kind: type[Message], version: int, body: bytes) -> bytes:
    """The whole frame of a request whose body is given."""
    head = struct.pack(">hhih", kind.api_key, version, 1, 8) + b"attacker"
    if version in kind.flexible:
        head += b"\0"
    return struct.pack(">I", len(head) + len(body)) + head + body


def written(kind: type[Message], version: int, **options: Any) -> tuple[bytes, int]:
    """A request frame, and how many lengths it has. `options`: those of `Writer`."""
    writer = Writer(version, version in kind.flexible, **options)
    body = writer.struct(kind)
    return request(kind, version, body), writer.lengths


def paths(owner: type[Struct], version: int, path: str = "") -> Iterator[tuple[str, str]]:
    """The path and the kind of every field with a length."""
    for name, one in owner.FIELDS.items():
        if version not in one.versions or one.tag is not None:
            continue
        here = f"{path}.{name}" if path else name
        if one.kind in _LENGTHS:
            yield here, one.kind
        inner = one.element if one.kind == "array" else one
        if inner.kind == "struct":
            yield from paths(inner.element, version, here)
