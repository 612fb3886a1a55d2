"""The checks of a record batch before it is stored.

The checks and error codes are those of Kafka's LogValidator: sizes, the CRC, the header, every
record (`quafka_proto.record_check`), keys if the topic is compacted, and timestamps by the topic's
configs.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from quafka_broker.topics.configs import TopicPolicy
from quafka_proto.compression import DECOMPRESSED_LIMIT, Codec, TooLarge, decompress_into
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.message import Buffer
from quafka_proto.record_check import Effort, TooLongError, check_body, out_of_range, without_key
from quafka_proto.record_runs import Body
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    DELETE_HORIZON,
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
"""The maximum number of records that an error names."""
_NO_KEY = "a compacted topic takes no record without a key"
_KEPT = 4 << 20
_ZEROED = 1 << 20
_GROWTH = 4


class Admitted(NamedTuple):
    """A checked batch that is ready to be stored, and its header."""

    header: BatchHeader
    batch: memoryview


class Scratch:
    """Reused memory for decompression: fresh memory costs as much as the decompression."""

    def __init__(self, size: int) -> None:
        self._data = _memory(size)

    def decompress(self, codec: int, packed: Buffer, limit: int) -> tuple[Body, int]:
        """Decompress records into a buffer that is valid until the next call; returns their size.

        Raises:
            TooLarge: the records have more than `limit` bytes.
            Malformed: the data is not of this codec.
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
    """Allocate memory, unzeroed if large: a bytearray of 64 MiB blocks all threads for 50 ms."""
    if size <= _ZEROED:
        return bytearray(size)
    import numpy as np  # imported late: only threads need it, and it takes 150 ms

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
    """Check a batch; returns the batch to store: with `LogAppendTime`, a copy with the time.

    A max timestamp that is not the records' newest is corrected, as in Kafka. A delete horizon is
    cleared: only compaction may set it, and a producer's would end the retention of tombstones.

    Raises:
        BatchError: INVALID_RECORD, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE,
            MESSAGE_TOO_LARGE (also for the decompressed size), INVALID_TIMESTAMP.
        TooLongError: the checks exceed `effort`, or the records `at_most` decompressed bytes.
    """
    header = whole_batch(records)
    if header.length > policy.max_message_bytes:
        raise BatchError(
            ErrorCode.MESSAGE_TOO_LARGE, f"max.message.bytes is {policy.max_message_bytes}"
        )
    part = checked_part(records, header)
    body, start, end = _body(policy, header, part, scratch, at_most)
    checked = check_body(header, body, start, end, effort)
    if checked.keyless and policy.compaction is not None:
        _refuse_keyless(header, body, start)
    if policy.log_append_time:
        stamped = memoryview(stamp(records, now_ms, append_time=True))
        return Admitted(read_header(stamped), stamped)
    oldest, newest = _allowed(policy, now_ms)
    if checked.newest > newest or checked.oldest < oldest:
        _refuse_times(header, body, start, oldest, newest)
    max_timestamp = max(checked.newest, _NO_TIMESTAMP)
    if header.max_timestamp != max_timestamp or header.attributes & DELETE_HORIZON:
        corrected = memoryview(stamp(records, max_timestamp, append_time=False))
        return Admitted(read_header(corrected), corrected)
    return Admitted(header, memoryview(records))


def _body(
    policy: TopicPolicy, header: BatchHeader, part: bytes, scratch: Scratch, at_most: int | None
) -> tuple[Body, int, int]:
    """The uncompressed records: a buffer, and their start and end in it."""
    if header.codec == Codec.NONE:
        return part, _BODY_AT, len(part)
    # A topic that allows larger batches allows them uncompressed, too.
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
    """The lowest and the highest allowed timestamp. No timestamp (-1) is always allowed."""
    newest = min(now_ms + policy.after_max_ms, _UNLIMITED)
    if policy.before_max_ms == _UNLIMITED:
        return -_UNLIMITED - 1, newest
    return now_ms - policy.before_max_ms, newest


def _refuse_keyless(header: BatchHeader, body: Body, start: int) -> None:
    """Raise INVALID_RECORD, naming the records without a key."""
    named = [(index, _NO_KEY) for index in islice(without_key(header, body, start), _MOST_NAMED)]
    raise BatchError(ErrorCode.INVALID_RECORD, f"record {named[0][0]}: {_NO_KEY}", named)


def _refuse_times(header: BatchHeader, body: Body, start: int, oldest: int, newest: int) -> None:
    """Raise INVALID_TIMESTAMP, unless the only such records have no timestamp."""
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
