"""What a topic's configs ask of the batches that are produced to it, before they are stored."""

from __future__ import annotations

from quafka_broker.topic_configs import TopicPolicy
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.record_codec import iter_records
from quafka_proto.records import BatchHeader, read_header, stamp

_NO_TIMESTAMP = -1
_UNLIMITED = (1 << 63) - 1

Batches = list[tuple[BatchHeader, memoryview]]


def admit(policy: TopicPolicy, batches: Batches, now_ms: int) -> Batches:
    """The batches as they are to be stored: with `LogAppendTime`, copies that carry the time.

    Raises:
        BatchError: MESSAGE_TOO_LARGE, or INVALID_TIMESTAMP.
    """
    for header, batch in batches:
        if header.length > policy.max_message_bytes:
            raise BatchError(
                ErrorCode.MESSAGE_TOO_LARGE, f"max.message.bytes is {policy.max_message_bytes}"
            )
        if not policy.log_append_time:
            _check_times(policy, header, batch, now_ms)
    if not policy.log_append_time:
        return batches
    stamped = [memoryview(stamp(batch, now_ms)) for _, batch in batches]
    return [(read_header(batch), batch) for batch in stamped]


def _check_times(policy: TopicPolicy, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
    """The header has the greatest timestamp; for the least, all records must be looked at."""
    if header.max_timestamp - now_ms > policy.after_max_ms:
        raise BatchError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms "
            f"({policy.after_max_ms}) ahead of the broker's clock",
        )
    if policy.before_max_ms == _UNLIMITED:
        return
    try:
        oldest = min(
            (r.timestamp for r in iter_records(batch) if r.timestamp != _NO_TIMESTAMP),
            default=now_ms,
        )
    except Malformed as e:
        raise BatchError(ErrorCode.INVALID_RECORD, str(e)) from e
    if now_ms - oldest > policy.before_max_ms:
        raise BatchError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {oldest} is more than message.timestamp.before.max.ms "
            f"({policy.before_max_ms}) behind the broker's clock",
        )
