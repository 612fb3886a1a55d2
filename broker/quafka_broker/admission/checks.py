"""What a producer sent for one partition, checked and made ready to be stored.

The checks are those of Kafka's LogValidator, with its error codes: of sizes, the CRC, the header,
every record (`quafka_proto.record_check`), and of timestamps as the topic's configs ask.
"""

from __future__ import annotations

from typing import NamedTuple

from quafka_broker.topics.configs import TopicPolicy
from quafka_proto.compression import DECOMPRESSED_LIMIT, Codec, TooLarge, decompress_into
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.message import Buffer
from quafka_proto.record_check import Body, Effort, TooLongError, check_body, out_of_range
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    PATCHED_SIZE,
    BatchHeader,
    checked_part,
    read_header,
    stamp,
    whole_batch,
)

_BODY_AT = BATCH_HEADER_SIZE - PATCHED_SIZE
_NO_TIMESTAMP = -1
_UNLIMITED = (1 << 63) - 1
_MOST_NAMED = 100
"""Records that an error names: a producer needs no million of them."""
_KEPT = 4 << 20
_ZEROED = 1 << 20
_GROWTH = 4


class Admitted(NamedTuple):
    """A batch that may be stored, and its header."""

    header: BatchHeader
    batch: memoryview


class Scratch:
    """Memory to decompress into, used again: fresh memory costs as much as the decompression."""

    def __init__(self, size: int) -> None:
        self._data = _memory(size)

    def decompress(self, codec: int, packed: Buffer, limit: int) -> tuple[Body, int]:
        """The records, at the front of a buffer that is good until the next call; their size.

        Raises:
            TooLarge: there is more than `limit`.
            Malformed: not data of this codec.
        """
        data = self._data
        while True:
            try:
                return data, decompress_into(codec, packed, memoryview(data)[:limit])
            except TooLarge:
                if len(data) >= limit:
                    raise
            data = _memory(min(limit, _GROWTH * len(data)))
            if len(data) <= _KEPT:
                self._data = data


def _memory(size: int) -> bytearray | memoryview:
    """Much memory is not zeroed: a bytearray of 64 MiB holds up all threads for 50 ms."""
    if size <= _ZEROED:
        return bytearray(size)
    import numpy as np  # late: only threads come here, and it takes 150 ms

    return np.empty(size, np.uint8).data


def admit(
    policy: TopicPolicy,
    records: Buffer,
    now_ms: int,
    scratch: Scratch,
    *,
    effort: Effort | None = None,
    at_most: int | None = None,
) -> Admitted:
    """The batch as it is to be stored: with `LogAppendTime`, a copy that carries the time.

    A max timestamp that is not the newest of the records is corrected, as Kafka does.

    Raises:
        BatchError: INVALID_RECORD, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE,
            MESSAGE_TOO_LARGE (also where it decompresses to too much), INVALID_TIMESTAMP,
            INVALID_TXN_STATE.
        TooLongError: not within this effort, or it decompresses to more than `at_most` bytes.
    """
    header = whole_batch(records)
    if header.length > policy.max_message_bytes:
        raise BatchError(
            ErrorCode.MESSAGE_TOO_LARGE, f"max.message.bytes is {policy.max_message_bytes}"
        )
    part = checked_part(records, header)
    body, start, end = _body(policy, header, part, scratch, at_most)
    times = check_body(header, body, start, end, effort)
    if policy.log_append_time:
        stamped = memoryview(stamp(records, now_ms, append_time=True))
        return Admitted(read_header(stamped), stamped)
    oldest, newest = _allowed(policy, now_ms)
    if times.newest > newest or times.oldest < oldest:
        _refuse_times(header, body, start, oldest, newest)
    if header.max_timestamp != max(times.newest, _NO_TIMESTAMP):
        corrected = memoryview(stamp(records, max(times.newest, _NO_TIMESTAMP), append_time=False))
        return Admitted(read_header(corrected), corrected)
    return Admitted(header, memoryview(records))


def _body(
    policy: TopicPolicy, header: BatchHeader, part: bytes, scratch: Scratch, at_most: int | None
) -> tuple[Body, int, int]:
    """The uncompressed records: a buffer, and from where to where in it."""
    if header.codec == Codec.NONE:
        return part, _BODY_AT, len(part)
    # Whoever may send large batches may send them uncompressed, too.
    limit = max(DECOMPRESSED_LIMIT, policy.max_message_bytes)
    packed = memoryview(part)[_BODY_AT:]
    try:
        body, size = scratch.decompress(header.codec, packed, min(limit, at_most or limit))
    except TooLarge as e:
        if at_most is not None and at_most < limit:
            raise TooLongError from e
        raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, str(e)) from e
    except Malformed as e:
        raise BatchError(ErrorCode.INVALID_RECORD, str(e)) from e
    return body, 0, size


def _allowed(policy: TopicPolicy, now_ms: int) -> tuple[int, int]:
    """The least and greatest timestamp that a record may have; -1, none, may be any time."""
    newest = min(now_ms + policy.after_max_ms, _UNLIMITED)
    if policy.before_max_ms == _UNLIMITED:
        return -_UNLIMITED - 1, newest
    return now_ms - policy.before_max_ms, newest


def _refuse_times(header: BatchHeader, body: Body, start: int, oldest: int, newest: int) -> None:
    """Raise INVALID_TIMESTAMP, unless it is only that some records have no timestamp."""
    named: list[tuple[int, str]] = []
    for index, timestamp in out_of_range(header, body, start, oldest, newest):
        named.append((index, f"timestamp {timestamp} is not within {oldest} to {newest}"))
        if len(named) == _MOST_NAMED:
            break
    if named:
        raise BatchError(
            ErrorCode.INVALID_TIMESTAMP,
            "timestamps are outside message.timestamp.before.max.ms or "
            f"message.timestamp.after.max.ms: {named[0][1]}",
            named,
        )
