"""msgpack payloads: record bytes by reference, and a bound on the cost of reading."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgpack as untyped_msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from quafka_loop.garbage import without_gc
from quafka_mesh_ops import by_reference
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import Buffer

msgpack: Any = untyped_msgpack
_LONG = by_reference.LONG
_BUFFERS = frozenset((bytes, bytearray, memoryview))

MAX_ARRAY = 1 << 17
"""More elements than any op has. msgpack allocates an array before it reads its elements."""
_MAX_COST = 1_900_000
ARRAY_COST = 10
"""The cost of a payload bounds the time to read it. A value counts 1 and an array ARRAY_COST,
which is how long msgpack takes for it. A fetch of 100,000 partitions, the most that a topic has,
stays below `_MAX_COST`. msgpack bounds the length of each array but not their sum, and one payload
byte can expand to 64 bytes of memory."""
UNCOUNTED = 64 << 10
"""Bytes of a payload that is small enough to be read without counting."""


class CostCounter:
    """Counts the cost of a payload while its arrays are made."""

    def __init__(self, spent: int = 0) -> None:
        self._left = _MAX_COST - spent

    def count(self, values: list[Any]) -> list[Any]:
        """Return the array. Raises ValueError if it exceeds the cost of a payload."""
        self._left -= ARRAY_COST + len(values)
        if self._left < 0:
            raise ValueError("too many values in a payload")
        return values


def check_cost(values: list[Any], counter: CostCounter) -> None:
    """Raise ValueError for a body that the reader would refuse together with its connection."""
    if len(values) > MAX_ARRAY:
        raise ValueError(f"a list of more than {MAX_ARRAY} values")
    counter.count(values)
    for value in values:
        if isinstance(value, list):
            check_cost(cast("list[Any]", value), counter)


class _Packing:
    """A packer that is kept: a new one for each small value costs as much as the value."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer()

    def pack(self, value: Any) -> bytes:
        packed: bytes = self._packer.pack(value)
        if len(packed) > UNCOUNTED:
            self._packer = msgpack.Packer()  # its buffer would stay as large
        return packed


pack: Callable[[Any], bytes] = _Packing().pack
"""Packs a value as a whole. Raises TypeError, ValueError, OverflowError."""


def has_long_bytes(values: list[Any]) -> bool:
    """Whether nested lists have a byte string so long that it is passed by reference."""
    for value in values:
        if type(value) is list:
            if value and has_long_bytes(cast("list[Any]", value)):
                return True
        elif type(value) in _BUFFERS and len(value) >= _LONG:
            return True
    return False


def pack_pieces(packer: Any, value: Any, pieces: list[Buffer]) -> None:
    """Pack nested lists; long byte strings become pieces of their own."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if not has_long_bytes(items):
            packer.pack(items)
            return
        packer.pack_array_header(len(items))
        for item in items:
            pack_pieces(packer, item, pieces)
    elif isinstance(value, Buffer) and len(cast(Buffer, value)) >= _LONG:
        records = cast(Buffer, value)
        pieces.append(packer.bytes() + bin_header(len(records)))
        packer.reset()
        pieces.append(records)
    else:
        packer.pack(value)


def bin_header(length: int) -> bytes:
    """What msgpack writes before a byte string of more than 255 bytes: bin 16 or bin 32."""
    return (
        struct.pack(">BH", 0xC5, length) if length <= 0xFFFF else struct.pack(">BI", 0xC6, length)
    )


def unpack(payload: Buffer) -> Any:
    """Read a payload. Raises ProtocolError."""
    length = len(payload)
    try:
        if length <= UNCOUNTED:
            return _UNPACK_SHORT[length.bit_length()](payload)
        values = unpack_few(payload)
        if values is not None:
            return values
        with without_gc():
            return msgpack.unpackb(payload, **unpack_options(length, CostCounter().count))
    except (ValueError, RecursionError) as e:
        raise unreadable(e) from e


def unpack_few(payload: Buffer) -> Any:
    """Read a long payload that consists of a few long byte strings; None for any other.

    Raises:
        ProtocolError: it is not a payload.
    """
    if len(payload) < by_reference.WORTHWHILE:
        return None
    try:
        return by_reference.unpack(payload)
    except by_reference.TooManyValuesError:
        return None
    except (ValueError, RecursionError) as e:
        raise unreadable(e) from e


def unpack_options(
    length: int, list_hook: Callable[[list[Any]], list[Any]] | None
) -> dict[str, Any]:
    """The options with which msgpack reads a payload of this length."""
    return {
        "raw": False,
        "max_array_len": min(length, MAX_ARRAY),
        "max_map_len": 0,
        "max_ext_len": 0,
        "ext_hook": _refuse_extension,
        "object_hook": _refuse_map,
        "list_hook": list_hook,
    }


def unreadable(error: Exception) -> ProtocolError:
    """The error for a payload that msgpack cannot read."""
    return ProtocolError(f"not a mesh payload: {type(error).__name__}: {error}")


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code}")


def _refuse_map(value: dict[Any, Any]) -> Any:
    raise ValueError("a map")


_UNPACK_SHORT = [
    partial(msgpack.unpackb, **unpack_options(1 << bits, None))
    for bits in range(UNCOUNTED.bit_length() + 1)
]
"""Readers of short payloads, by the bit length of their length."""
