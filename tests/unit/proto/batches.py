"""Batches for tests, valid ones and ones with a wrong header or body."""

from __future__ import annotations

import struct
from typing import Any

from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BATCH_HEADER_SIZE, PATCHED_SIZE, crc32c

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", []),
    Record(1, 1_700_000_000_007, None, b"x" * 300, [("one", b"1"), ("naïve", None)]),
    Record(2, 1_699_999_999_000, b"", None, [("one", b""), ("one", b"again")]),
    Record(3, 1_700_000_000_000, None, b"", []),
]


def ours(records: list[Record] = RECORDS, **options: Any) -> bytes:
    return bytes(build_batch(records, **options))


def resealed(batch: bytes, **changes: int) -> bytes:
    """The batch with header fields changed, and its CRC made right again."""
    places = {
        "attributes": (">h", 21),
        "last_offset_delta": (">i", 23),
        "record_count": (">i", 57),
    }
    out = bytearray(batch)
    for name, value in changes.items():
        form, at = places[name]
        struct.pack_into(form, out, at, value)
    struct.pack_into(">I", out, 17, crc32c(out[PATCHED_SIZE:]))
    return bytes(out)


def with_length(length: int) -> bytes:
    return ours()[:8] + struct.pack(">i", length) + ours()[12:]


def with_body(body: bytes, count: int = 1) -> bytes:
    """A batch of these record bytes, its length and CRC right."""
    head = bytearray(ours()[:BATCH_HEADER_SIZE])
    struct.pack_into(">i", head, 8, BATCH_HEADER_SIZE - 12 + len(body))
    return resealed(bytes(head) + body, record_count=count, last_offset_delta=count - 1)


EMPTY = b"\x0c\x00\x00\x00\x01\x01\x00"  # a record of 6 bytes: null key, null value, no headers
