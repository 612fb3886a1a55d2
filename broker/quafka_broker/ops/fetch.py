"""Op 0x03, fetch: read, and park until there is enough to read.

One op carries all partitions of a Kafka fetch. It is answered when `min_bytes` can be read over
all of them, when any has an error, or at `max_wait_ms`. Batches are whole; the first of the first
partition that has any is returned however large (KIP-74). What is not durable is never read.

Without transactions nothing in the log is undecided: the last stable offset is the high
watermark, where also a replica's reads end; to read_committed the list of aborted transactions is
empty, not missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quafka_broker import leader_epochs
from quafka_broker.state import BrokerState
from quafka_broker.virtual_topics import OffsetGoneError, VirtualTopic, VirtualTopicId
from quafka_broker.wal.errors import CorruptError, StorageError
from quafka_mesh_ops.ops import (
    AbortedTransaction,
    EpochEnd,
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
)
from quafka_mesh_ops.parts import Buffer
from quafka_mesh_ops.server import OpContext
from quafka_mesh_ops.tracing import Span, fail_with
from quafka_proto.errors import ErrorCode
from quafka_proto.records import read_header

_READ_COMMITTED = 1


async def handle(state: BrokerState, context: OpContext, op: FetchOps) -> FetchOpsResp:
    """Answer with what there is, at once or later."""
    now = asyncio.get_running_loop().time
    until = now() + op.max_wait_ms / 1000
    parked = 0.0
    stamp = state.leases.stamp()
    poll = _Poll(state, context.org_id, op)
    if op.max_wait_ms > 0 and not poll.enough:
        with context.tracer.start("broker.fetch.park", context.trace):
            began = now()
            await poll.park(until)
            parked = now() - began
    await context.may_read()
    with context.tracer.start("rafka.broker.fetch.read", context.trace) as span:
        answers = await _read(state, op, poll.targets)
        if span.context is not None:
            _describe(span, poll.targets, answers)
    return FetchOpsResp(
        answers, leased=state.leases.unchanged_since(stamp), parked_us=round(parked * 1e6)
    )


@dataclass(slots=True)
class _Target:
    """One partition to read: where, or why not."""

    op: FetchOp
    topic: VirtualTopic | None
    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    counted: int = 0
    """Bytes that could be returned of it, and, in `counted_to`, from which offset on there may be
    more: of a partition that grows, only the growth is counted."""
    counted_to: int = 0
    uuid: bytes = b""

    @property
    def final(self) -> bool:
        """Whether its answer is known without reading: there is nothing to wait for."""
        return self.error != ErrorCode.NONE or self.diverging is not None


class _Poll:
    """All partitions of an op, and whether it can be answered."""

    def __init__(self, state: BrokerState, org: int, op: FetchOps) -> None:
        self._state = state
        self._org = org
        self._wanted = min(op.min_bytes, op.max_bytes)
        self._found = 0
        self._answerable = not op.partitions
        self.targets = [_target(state, org, part) for part in op.partitions]
        for target in self.targets:
            self._look(target)

    @property
    def enough(self) -> bool:
        """Whether there is an error to tell, or enough to return."""
        return self._answerable or self._found >= self._wanted

    async def park(self, until: float) -> None:
        """Wait until there is enough, or loop time `until`."""
        places: dict[VirtualTopicId, list[int]] = {}
        for place, target in enumerate(self.targets):
            if target.topic is not None:
                places.setdefault(target.topic.id, []).append(place)
        with self._state.purgatory.park(places, until) as parked:
            while not self.enough:
                for topic in await parked.changed():
                    for place in places[topic]:
                        self._look_again(place)
                if parked.over:
                    break

    def _look_again(self, place: int) -> None:
        before = self.targets[place]
        target = self.targets[place] = _target(self._state, self._org, before.op)
        target.counted, target.counted_to = before.counted, before.counted_to
        self._look(target)

    def _look(self, target: _Target) -> None:
        """Count what can be read of a partition, beyond what was counted before."""
        topic = target.topic
        if target.final or topic is None:
            self._answerable = True
            return
        target.counted_to = max(target.counted_to, target.op.fetch_offset)
        # As in Kafka, a partition counts for no more than may be returned of it.
        missing = min(target.op.max_bytes - target.counted, self._wanted - self._found)
        if target.counted_to >= topic.high_watermark or missing <= 0:
            return
        try:
            size = self._state.log.readable_bytes(topic, target.counted_to, missing)
        except StorageError:
            self._answerable = True  # reading will fail too, and that is the answer
            return
        target.counted_to = topic.high_watermark
        target.counted += min(size, missing)
        self._found += min(size, missing)


def _target(state: BrokerState, org: int, op: FetchOp) -> _Target:
    topic = state.find(org, op.topic, op.topic_id)
    if topic is None:
        by_id = op.topic_id and not op.topic
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _Target(op, None, unknown)
    if op.topic_id and op.topic_id != topic.uuid:
        return _Target(op, None, ErrorCode.INCONSISTENT_TOPIC_ID)
    if not 0 <= op.partition < topic.partitions:
        return _Target(op, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    virtual = state.log.topic(topic.virtual(op.partition))
    error = leader_epochs.check(op.current_leader_epoch)
    if error:
        return _Target(op, virtual, error)
    if op.last_fetched_epoch >= 0:
        end = leader_epochs.end_of(op.last_fetched_epoch, virtual.high_watermark)
        if end == leader_epochs.UNDEFINED:
            return _Target(op, virtual, ErrorCode.OFFSET_OUT_OF_RANGE)
        if op.fetch_offset > end.end_offset:
            return _Target(op, virtual, diverging=end)
    if not virtual.log_start <= op.fetch_offset <= virtual.high_watermark:
        return _Target(op, virtual, ErrorCode.OFFSET_OUT_OF_RANGE)
    return _Target(op, virtual, uuid=topic.uuid)


async def _read(state: BrokerState, op: FetchOps, targets: list[_Target]) -> list[FetchOpResp]:
    aborted: list[AbortedTransaction] | None = [] if op.isolation_level == _READ_COMMITTED else None
    answers: list[FetchOpResp] = []
    left = op.max_bytes
    empty = op.at_least_one
    for target in targets:
        topic, error = target.topic, target.error
        batches: list[Buffer] = []
        if topic is None:
            answers.append(FetchOpResp([], high_watermark=-1, error_code=error))
            continue
        if not target.final and target.op.fetch_offset < topic.high_watermark:
            batches, error = await _read_one(state, topic, target.op, left, empty)
            size = sum(map(len, batches))
            left -= size
            empty = empty and not size
        answers.append(
            FetchOpResp(
                batches,
                high_watermark=topic.high_watermark,
                error_code=error,
                log_start_offset=topic.log_start,
                last_stable_offset=topic.high_watermark,
                aborted_transactions=aborted,
                diverging_epoch=target.diverging,
                topic_id=b"" if target.op.topic_id else target.uuid,
            )
        )
    return answers


async def _read_one(
    state: BrokerState, topic: VirtualTopic, op: FetchOp, left: int, first: bool
) -> tuple[list[Buffer], ErrorCode]:
    limit = max(0, min(op.max_bytes, left))
    try:
        batches = await state.log.read(topic, op.fetch_offset, limit, at_least_one=first)
    except CorruptError:
        return [], ErrorCode.CORRUPT_MESSAGE
    except StorageError:
        return [], ErrorCode.KAFKA_STORAGE_ERROR
    except OffsetGoneError:  # while another partition was read
        return [], ErrorCode.OFFSET_OUT_OF_RANGE
    return list(batches), ErrorCode.NONE


def _describe(span: Span, targets: list[_Target], answers: list[FetchOpResp]) -> None:
    first = targets[0] if targets else None
    batches = [batch for answer in answers for batch in answer.records]
    span.set(
        {
            "messaging.system": "kafka",
            "virtual_topic": first.topic.id.key if first and first.topic else "",
            "partitions": len(targets),
            "fetch_offset": first.op.fetch_offset if first else -1,
            "returned_count": sum(read_header(batch).record_count for batch in batches),
            "bytes": sum(map(len, batches)),
            "high_watermark": answers[0].high_watermark if answers else -1,
        }
    )
    fail_with(span, (answer.error_code for answer in answers))
