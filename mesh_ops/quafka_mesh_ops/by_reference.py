"""Reads msgpack that consists mostly of a few long byte strings, without copying them.

msgpack's own reader copies every byte string. With many short values, a Python loop over them costs
more than the copies: then this reader gives up early and leaves the payload to msgpack.
"""

from __future__ import annotations

import struct
from typing import Any

LONG = 2048
"""Bytes from which on a byte string is passed by reference instead of being copied."""
WORTHWHILE = 32 << 10
"""Bytes of a payload from which on this reader may be faster."""
_BYTES_PER_VALUE = 8 << 10
_FEW = 64

_SCALARS = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_BINARY = {0xC4: 1, 0xC5: 2, 0xC6: 4}  # and the size of the length field
_TEXT = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}


class TooManyValuesError(Exception):
    """msgpack is faster for this payload: it has many values."""


def unpack(payload: bytes | bytearray | memoryview) -> Any:
    """Read the value of a payload. Its long byte strings are memoryviews of it.

    Raises:
        TooManyValuesError: leave it to msgpack.
        ValueError: it is not msgpack, or contains a map or an extension type.
        RecursionError: arrays are nested too deeply.
    """
    reader = _Reader(memoryview(payload))
    try:
        value = reader.value()
    except (IndexError, struct.error) as e:
        raise ValueError("cut short") from e
    if reader.at != len(payload):
        raise ValueError("data after the value")
    return value


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self.at = 0
        self._data = data
        self._left = _FEW + len(data) // _BYTES_PER_VALUE

    def value(self) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooManyValuesError
        tag = self._data[self.at]
        self.at += 1
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag & 0xF0 == 0x90:
            return self._array(tag & 0x0F)
        if tag & 0xE0 == 0xA0:
            return str(self._bytes(tag & 0x1F), "utf-8")
        return self._other(tag)

    def _other(self, tag: int) -> Any:
        """Read a value with a length after its tag, or of fixed size."""
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag in _SCALARS:
            return self._scalar(_SCALARS[tag])
        if tag in _BINARY:
            found = self._bytes(self._length(_BINARY[tag]))
            return found if len(found) >= LONG else bytes(found)
        if tag in _TEXT:
            return str(self._bytes(self._length(_TEXT[tag])), "utf-8")
        if tag in _ARRAYS:
            return self._array(self._length(_ARRAYS[tag]))
        raise ValueError(f"a value of type 0x{tag:02x}")

    def _array(self, count: int) -> list[Any]:
        if count > self._left:
            raise TooManyValuesError
        return [self.value() for _ in range(count)]

    def _scalar(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self._data, self.at)
        self.at += form.size
        return value

    def _length(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "big")

    def _bytes(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self._data):
            raise ValueError("cut short")
        found = self._data[self.at : end]
        self.at = end
        return found
