"""The objects of a log in an object store, for the fuzzer.

Chain, manifest, list of files, view, and the description of the cluster. Those in JSON are also
tried with the CRC that belongs to them, so that what they say is looked at.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, cast

from quafka_objects.chain_tail import decode_tail
from quafka_proto.chain_format import (
    ENTRIES,
    FENCE,
    HEADER_SIZE,
    ChainHeader,
    Owner,
    ShardManifest,
    StoredFile,
    crc_of,
    decode_directory,
    decode_manifest,
    encode_directory,
    encode_header,
    encode_manifest,
)
from quafka_proto.cluster_format import (
    ClusterFile,
    Registration,
    decode_cluster,
    decode_registration,
    encode_cluster,
    encode_registration,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    check_entry,
    check_entry_header,
    decode_row,
    encode_entry_header,
    encode_row,
    row_of,
)
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import PATCHED_SIZE, crc32c
from quafka_proto.snapshot_format import SegmentPiece, SnapshotManifest, new_snapshot_id
from quafka_proto.view_format import View, decode_view, encode_view

SHARD, SEQ = 3, 16
_SALT = 7


def chain_object() -> bytes:
    """An object with two entries and their index rows."""
    entries, rows, position = b"", b"", FILE_HEADER_SIZE
    for number in range(2):
        batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v" * number, [])], number))
        head = encode_entry_header(
            batch[:PATCHED_SIZE],
            salt=_SALT,
            length=len(batch),
            global_id=number,
            base_offset=number,
            durable_position=FILE_HEADER_SIZE,
            topic_hash=bytes(range(16)),
            org_id=1,
            partition=0,
            generation=1,
            record_count=1,
        )
        entry = check_entry_header(head + batch, 0, _SALT)
        rows += encode_row(row_of(entry, position, batch))
        entries += head + batch
        position += entry.size
    header = ChainHeader(
        ENTRIES, SHARD, SEQ, 1, bytes(range(16)), position=FILE_HEADER_SIZE, entries=2, salt=_SALT,
        length=len(entries),
    )  # fmt: skip
    return encode_header(header) + entries + rows


def is_whole(data: bytes) -> bool:
    """Whether the header, entries and rows of a chain object are all as they were written."""
    try:
        tail = decode_tail(data, SHARD, SEQ)
        header, at = tail.header, tail.header.position
        for row in range(0, len(tail.rows), INDEX_ROW_SIZE):
            decode_row(tail.rows, row)
            at += check_entry(data, header.offset_of(at), header.salt).size
    except Malformed:
        return False
    return at == header.position + header.length


def chain(data: bytes) -> bool:
    """What somebody with rights on the bucket may have written; the first byte says into what."""
    kind, data = data[:1], data[1:]
    if kind in (b"\0", b"\1"):
        return is_whole(_sealed(data) if kind == b"\1" else data)
    try:
        _DECODERS.get(kind, decode_directory)(data)
    except Malformed:
        return False
    return True


def _sealed(data: bytes) -> bytes:
    """An object whose header has the right CRC, so that what it says is looked at."""
    if len(data) < HEADER_SIZE:
        return data
    return (
        data[: HEADER_SIZE - 4]
        + struct.pack(">I", crc32c(data[: HEADER_SIZE - 4]))
        + data[HEADER_SIZE:]
    )


def _with_crc(data: bytes) -> bytes:
    """JSON fields with their CRC."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(found, dict):
        return data
    values = {key: each for key, each in cast("dict[str, Any]", found).items() if key != "crc"}
    return json.dumps({**values, "crc": crc_of(values)}).encode()


_DECODERS: dict[bytes, Callable[[bytes], object]] = {
    b"\2": lambda data: decode_manifest(data, SHARD),
    b"\4": lambda data: decode_view(data, SHARD),
    b"\5": decode_cluster,
    b"\6": decode_registration,
    b"\7": lambda data: decode_manifest(_with_crc(data), SHARD),
    b"\10": lambda data: decode_cluster(_with_crc(data)),
    b"\11": lambda data: decode_registration(_with_crc(data)),
}


def chain_seeds() -> list[bytes]:
    """Valid objects of each kind."""
    manifest = ShardManifest(
        SHARD, 5, Owner("node", "broker:9094"), 1_700_000_000_000, "d", 7, 9, "v"
    )
    files = [StoredFile(f"{n:012d}.log", f"files/0003/{n}", 1 << 30) for n in range(3)]
    piece = SegmentPiece(0, _SALT, 0, 1, "files/0003/a", 0, "files/0003/b", 0, 1, "zones/0003/a")
    snapshot = SnapshotManifest(new_snapshot_id(1, 1), 1, "c", 3, None, None, [piece], [], [])
    broker = Registration("node", "broker:9094", 7, 1_700_000_000_000, draining=True)
    fence = encode_header(ChainHeader(FENCE, SHARD, SEQ, 1, bytes(16)))
    return [
        b"\0" + chain_object(),
        b"\1" + chain_object(),
        b"\1" + fence,
        b"\2" + encode_manifest(manifest),
        b"\3" + encode_directory(files),
        b"\4" + encode_view(View(SHARD, 4, snapshot)),
        *(kind + encode_cluster(ClusterFile("an id", 4)) for kind in (b"\5", b"\10")),
        *(kind + encode_registration(broker) for kind in (b"\6", b"\11")),
        b"\7" + encode_manifest(manifest),
    ]
