"""What is done with hostile bytes: each target takes any bytes, and lets only the unexpected out.

A target returns whether the bytes were accepted. Errors of the Malformed family are refusals;
whatever else is raised is a finding.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

from quafka_broker.kafka_logs.cluster_image import ClusterImage
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.folder_names import segment_name
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_mesh_ops.envelopes import decode_request, decode_response
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import StreamFrames, Tag, decode_number
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.codec import from_wire, weight
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.pieces import Pieces
from quafka_proto.codec import decode
from quafka_proto.compression import Codec, decompress, mend_lz4
from quafka_proto.errors import BatchError, Malformed, UnsupportedVersion
from quafka_proto.headers import decode_request_header, decode_response_header
from quafka_proto.kafka_group_records import decode_group, decode_group_key, decode_offset
from quafka_proto.kafka_log_format import aborted_transactions, producer_entries
from quafka_proto.kafka_metadata_records import decode_metadata_record
from quafka_proto.message import REQUESTS
from quafka_proto.message_sets import from_batches, iter_messages, to_batch
from quafka_proto.record_check import check_records
from quafka_proto.record_codec import iter_records, read_marker
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    CONTROL,
    PATCHED_SIZE,
    crc32c,
    read_header,
    split_batches,
)
from quafka_proto.schema import response_type
from tests.fuzz.chain import chain
from tests.fuzz.group_facts import group_facts
from tests.fuzz.sasl import sasl

REFUSED = (Malformed, BatchError, UnsupportedVersion, ProtocolError)
LIMIT = 1 << 20
"""What anything may decompress to; bytes."""
_CODES = sorted(OPS)
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def header(data: bytes) -> bool:
    """A request's header."""
    try:
        decode_request_header(data)
    except REFUSED:
        return False
    return True


def request(data: bytes) -> bool:
    """A request frame."""
    try:
        head, at = decode_request_header(data)
        decode(REQUESTS[head.api_key], head.api_version, data, at)
    except REFUSED:
        return False
    return True


def response(data: bytes) -> bool:
    """A response frame; in front of it two bytes each for API key and version."""
    if len(data) < 4:
        return False
    key, version = struct.unpack_from(">hh", data)
    message = response_type(key)
    if message is None or version not in message.versions:
        return False
    frame = data[4:]
    try:
        _, at = decode_response_header(message, version, frame)
        decode(message, version, frame, at)
    except REFUSED:
        return False
    return True


def batches(data: bytes) -> bool:
    """What a producer sends and the log stores: split, checked and iterated."""
    try:
        found = [view for _, view in split_batches(data)]
    except REFUSED:
        found = [memoryview(data)]  # a reader of the log does not check it again
    accepted = False
    for batch in found:
        try:
            check_records(batch, LIMIT)
        except REFUSED:
            pass
        else:
            accepted = True
        with contextlib.suppress(*REFUSED):
            control = read_header(batch).attributes & CONTROL
            for record in iter_records(batch, LIMIT):
                if control:
                    read_marker(record)
    return accepted


def sealed_batch(data: bytes) -> bool:
    """A batch whose length and CRC are made right, so that what is inside is looked at."""
    if len(data) < BATCH_HEADER_SIZE:
        return batches(data)
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - 12)
    out[16] = 2
    struct.pack_into(">I", out, 17, crc32c(out[PATCHED_SIZE:]))
    return batches(bytes(out))


def message_set(data: bytes) -> bool:
    """What an old producer sends, stored, and fetched by an old consumer."""
    try:
        stored = to_batch(data, LIMIT)
        for magic in (0, 1):
            from_batches([stored], magic, 0, LIMIT)
    except REFUSED:
        accepted = False
    else:
        accepted = True
    with contextlib.suppress(*REFUSED):
        deque(iter_messages(data, LIMIT), 0)
    return accepted


def sealed_message_set(data: bytes) -> bool:
    """A set whose first message's length and CRC are made right."""
    if len(data) < 18:
        return message_set(data)
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 12, zlib.crc32(out[16:]))
    return message_set(bytes(out))


def fetched(data: bytes) -> bool:
    """Any stored bytes, converted for an old consumer; the first byte says for which format."""
    try:
        from_batches([data[1:]], (data or b"\0")[0] & 1, 0, LIMIT, LIMIT)
    except REFUSED:
        return False
    return True


def decompression(data: bytes) -> bool:
    """The first byte names the codec, and whether lz4's header is mended."""
    codec = (data or b"\0")[0]
    packed = data[1:]
    if codec & 7 == Codec.LZ4 and codec & 8:
        packed = mend_lz4(packed)
    try:
        out = decompress(codec & 7, packed, LIMIT)
    except REFUSED:
        return False
    assert len(out) <= LIMIT
    return True


def mesh_stream(data: bytes) -> bool:
    """Frames on a stream of the mesh; the first byte says in pieces of what size they arrive.

    There are some 256 pieces at most: each has a cost of its own, which is none of its bytes'.
    Nothing on a stream says which op an answer is for: its length chooses one here.
    """
    frames, pieces = StreamFrames(LIMIT, LIMIT), Pieces(LIMIT)
    size = max(1 + (data or b"\0")[0], len(data) // 256)
    try:
        for at in range(1, len(data), size):
            for tag, payload in frames.feed(0, data[at : at + size], False):
                if tag in (Tag.OP, Tag.RESPONSE):
                    _mesh_envelope(tag, payload, _CODES[len(payload) % len(_CODES)])
                elif tag is Tag.PIECE:
                    joined = pieces.feed(0, payload)
                    if joined is not None:
                        _mesh_envelope(*joined, 0)
                elif tag is not Tag.GOAWAY:
                    decode_number(payload)
            assert frames.unfinished <= LIMIT
            assert pieces.unfinished <= LIMIT
    except REFUSED:
        return False
    return True


def mesh_envelope(data: bytes) -> bool:
    """What a frame holds: after a first byte of 255 a request, else the answer to that op code."""
    code = (data or b"\0")[0]
    try:
        _mesh_envelope(Tag.OP if code == 255 else Tag.RESPONSE, data[1:], code)
    except REFUSED:
        return False
    return True


def _mesh_envelope(tag: Tag, payload: Buffer, code: int) -> None:
    if tag is Tag.OP:
        request = decode_request(payload)
        op = OPS.get(request.op_code)
        if op is not None:
            weight(from_wire(op, request.body))
        return
    response = decode_response(payload)
    for op in [OPS[code]] if code in OPS else OPS.values():
        with contextlib.suppress(*REFUSED):
            from_wire(op.response, response.body)


def kafka_metadata(data: bytes) -> bool:
    """The value of a record in Kafka's metadata log."""
    try:
        record = decode_metadata_record(data)
    except REFUSED:
        return False
    if record is not None:
        with contextlib.suppress(*REFUSED):
            ClusterImage().apply(record)
    return record is not None


def kafka_groups(data: bytes) -> bool:
    """A record in Kafka's log of groups; the first byte says whether a key or what value."""
    read = (decode_group_key, decode_offset, decode_group)[(data or b"\0")[0] % 3]
    try:
        return read(data[1:]) is not None
    except REFUSED:
        return False


def kafka_indexes(data: bytes) -> bool:
    """A `.txnindex` or `.snapshot` file; the first byte says which."""
    read = (aborted_transactions, producer_entries)[(data or b"\0")[0] % 2]
    try:
        read(data[1:])
    except REFUSED:
        return False
    return True


def kafka_segment(data: bytes) -> bool:
    """A `.log` file of Kafka's; half of them beside indexes of the same bytes."""
    suffixes = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
        folder = Path(name)
        for suffix in suffixes if len(data) % 2 else suffixes[:1]:
            (folder / segment_name(0, suffix)).write_bytes(data)
        try:
            log = PartitionLog(folder)
            log.read(log.log_start, LIMIT)
            log.aborted(0, log.log_end)
            log.offset_at(0)
            log.newest()
        except KafkaLogError:
            return False
    return log.log_end > 0


TARGETS: dict[str, Callable[[bytes], bool]] = {
    target.__name__: target
    for target in (
        header,
        request,
        response,
        batches,
        sealed_batch,
        message_set,
        sealed_message_set,
        fetched,
        decompression,
        mesh_stream,
        mesh_envelope,
        kafka_metadata,
        kafka_groups,
        kafka_indexes,
        kafka_segment,
        sasl,
        chain,
        group_facts,
    )
}
