"""Op 0x02, produce: check each partition's batch, append it, answer when it is durable.

A partition's error does not affect the others. Batches of one partition reach the log in the order
in which their ops arrived, even if some take longer to check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from quafka_broker.admission.checks import Admitted
from quafka_broker.admission.queue import (
    SHORT_BYTES,
    SHORT_RECORDS,
    Spent,
    Verdict,
    claimed_records,
)
from quafka_broker.ops.destinations import destinations
from quafka_broker.partitions.errors import InDoubtError, MovedError, StorageError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producer_state import Batch, SequenceError
from quafka_broker.sources.source import PartitionSource, ProduceFacts, RecordsRefusedError
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic, unknown_topic
from quafka_broker.wal.append_queue import Share
from quafka_broker.wal.commit_group import WriteTimes
from quafka_loop import clock
from quafka_loop.slices import Slices, turn
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.records import (
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
    RecordError,
)
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.records import LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, read_header
from quafka_telemetry import semconv
from quafka_telemetry.destinations import describe_destinations
from quafka_telemetry.tracing import MAX_LINKS, Span, TraceContext, Tracer, fail_with

_WRITES_TRACED = 4
_APPENDS_A_SLICE, _ANSWERS_A_SLICE = 64, 512
_BYTES_A_COMMIT = Share().bytes
"""Bytes of one op after which others may append first. Their number does not count: thousands of
small batches share a commit."""
_PER_BATCH = 16  # the cost of a batch without its records, in records
_FULL = "the records of the org take as many bytes as its limit max.stored.bytes allows"


@dataclass(slots=True, eq=False)
class _Write:
    """One partition's batch on its way to the log: a new batch, or a repeat of an earlier one.

    `prompt`: see `ProduceOpResp`.
    """

    partition: PartitionSource
    records: int
    pending: asyncio.Future[list[int]] | None = None
    repeated: Batch | None = None
    uuid: bytes = b""
    append_time: int = -1
    offset: int | None = None
    prompt: bool = False


_Begun = _Write | ProduceOpResp
"""A batch on its way to the log, or the answer to a refused one."""


async def handle(state: BrokerState, context: OpContext, op: ProduceOps) -> ProduceOpsResp:
    """Append every partition's batch."""
    if not state.log.queue.has_room(context.org_id):
        await state.log.queue.wait_for_room(context.org_id)
    if context.trace is not None:
        return await _handle_traced(state, context, op)
    request = _Request(state, context.org_id, op, None)
    begun = request.begin_now() or await request.begin_in_order()
    appended = clock.perf_counter()
    return ProduceOpsResp(
        await _finish(begun), request.check_us, clock.microseconds_since(appended)
    )


async def _handle_traced(state: BrokerState, context: OpContext, op: ProduceOps) -> ProduceOpsResp:
    with context.tracer.start(semconv.STORE, context.trace) as span:
        context.ack_parent = span.context
        writes: list[WriteTimes] = []
        request = _Request(state, context.org_id, op, writes)
        begun = request.begin_now() or await request.begin_in_order()
        appended = clock.perf_counter()
        with context.tracer.start(semconv.COMMIT, span.context) as commit:
            answers = await _finish(begun)
        commit_us = clock.microseconds_since(appended)
        if span.context is not None:
            _describe(span, op, begun, answers)
            describe_destinations(span, destinations(state, context.org_id, op.partitions))
            _trace_writes(context.tracer, commit.context, writes)
            _remember(state, span.context, begun)
    return ProduceOpsResp(answers, request.check_us, commit_us)


class _Request:
    """All partitions of an op on their way to the log."""

    __slots__ = ("_now_ms", "_op", "_org", "_producer", "_spent", "_state", "_verdicts", "_writes")

    def __init__(
        self, state: BrokerState, org: int, op: ProduceOps, writes: list[WriteTimes] | None
    ) -> None:
        self._state = state
        self._org = org
        self._op = op
        self._writes = writes
        self._verdicts: list[Verdict | ProduceOpResp | None] = []
        self._now_ms = clock.time_ns() // 1_000_000
        self._spent: Spent | None = None
        self._producer: ProduceFacts | None = None
        if op.transactional_id:
            self._producer = ProduceFacts(
                org, op.transactional_id, op.implicit, op.connection, op.home
            )

    @property
    def check_us(self) -> int:
        """See ProduceOpsResp."""
        return 0 if self._spent is None else round(self._spent.seconds * 1e6)

    def begin_now(self) -> list[_Begun] | None:
        """Check the batches of a short op, and append them to the log.

        None if the op is not short, or earlier batches of its partitions wait: then call
        `begin_in_order`.
        """
        parts = self._op.partitions
        if len(parts) > 1 and not self._is_short():
            return None
        topics = [self._find_if_known(part) for part in parts]
        verdicts = [self._check(*each) for each in zip(parts, topics, strict=True)]
        clear = None not in verdicts and self._state.admissions.is_clear(self._topics())
        if not clear or (self._producer is not None and not self._is_prepared(self._producer)):
            self._verdicts = verdicts
            return None
        self._join(verdicts)
        begun = [self._append(*each) for each in zip(parts, topics, verdicts, strict=True)]
        for topic, write in zip(topics, begun, strict=True):
            if isinstance(write, _Write) and topic is not None:
                write.prompt = not topic.source
        return begun

    async def begin_in_order(self) -> list[_Begun]:
        """Check the batches and append them to the log, after earlier ones of their partitions.

        Called in the same turn of the loop as `begin_now`: no other op runs before the first await;
        from then on, `in_order` keeps the order of ops.
        """
        producer = self._producer
        if producer is None or self._is_prepared(producer):
            return await self._begin_in_order(None)
        # Only the producer's own batches wait for another broker's answer.
        with self._state.admissions.in_order([producer[:2]]) as ahead:
            if ahead:
                await asyncio.wait(ahead)
            admission = self._state.transactions.admission
            refused = await admission.prepare(producer, self._batches())
            return await self._begin_in_order(refused)

    async def _begin_in_order(self, refused: RecordsRefusedError | None) -> list[_Begun]:
        """`refused`: the error of all transactional batches."""
        parts = self._op.partitions
        verdicts = self._verdicts or [None] * len(parts)
        with self._state.admissions.in_order(self._topics()) as ahead:
            await self._check_rest(verdicts)
            if ahead:
                await asyncio.wait(ahead)
            if refused is not None:
                self._refuse(refused, verdicts)
            begun: list[_Begun] = []
            slices = Slices(_APPENDS_A_SLICE)
            self._join(verdicts)
            log, size = self._state.log, 0
            for part, verdict in zip(parts, verdicts, strict=True):
                if size >= _BYTES_A_COMMIT:
                    # While others append, an op of 90 MB is many commits: theirs are between them.
                    size = 0
                    if not log.queue.has_room(self._org):
                        await log.queue.wait_for_room(self._org)
                if self._producer is None:  # a transaction could end between two commits
                    size += len(part.records)
                # The topic may have been deleted meanwhile.
                begun.append(self._append(part, self._find_if_known(part), verdict))
                await slices.done()
        return begun

    def _join(self, verdicts: list[Verdict | ProduceOpResp | None]) -> None:
        """Add the partitions of several transactional batches to their transaction at once."""
        producer = self._producer
        if producer is None or not producer.implicit or len(verdicts) == 1:
            return
        batches: list[tuple[BatchHeader, PartitionId, str]] = []
        for part, verdict in zip(self._op.partitions, verdicts, strict=True):
            topic = self._find_if_known(part)
            if topic is not None and not topic.source and isinstance(verdict, Admitted):
                batches.append((verdict.header, topic.partition_id(part.partition), topic.name))
        self._state.transactions.admission.join_all(producer, batches)

    def _is_prepared(self, producer: ProduceFacts) -> bool:
        """Whether the batches need not wait for the transaction or for others that do."""
        state = self._state
        return state.admissions.is_clear([producer[:2]]) and (
            state.transactions.admission.is_prepared(producer, self._batches)
        )

    def _batches(self) -> list[tuple[BatchHeader, PartitionId, str]]:
        """The op's batches, checked or not, with their partitions and topics."""
        batches: list[tuple[BatchHeader, PartitionId, str]] = []
        for part in self._op.partitions:
            topic = self._find_if_known(part)
            if topic is not None and not topic.source:
                with suppress(Malformed):  # the batch will be refused
                    header = read_header(part.records)
                    batches.append((header, topic.partition_id(part.partition), topic.name))
        return batches

    @staticmethod
    def _refuse(
        refused: RecordsRefusedError, verdicts: list[Verdict | ProduceOpResp | None]
    ) -> None:
        """Refuse all transactional batches."""
        for at, verdict in enumerate(verdicts):
            if isinstance(verdict, Admitted) and verdict.header.attributes & TRANSACTIONAL:
                verdicts[at] = _refusal(refused)

    def _is_short(self) -> bool:
        """Whether an op of several partitions can be checked without yielding."""
        parts = self._op.partitions
        if len(parts) > _APPENDS_A_SLICE or sum(len(p.records) for p in parts) > SHORT_BYTES:
            return False
        return sum(claimed_records(part.records) for part in parts) <= SHORT_RECORDS

    def _topics(self) -> Iterator[PartitionId]:
        """The partitions of the op that exist."""
        for part in self._op.partitions:
            topic = self._state.registry.find(self._org, part.topic, part.topic_id)
            if topic is not None:
                yield topic.partition_id(part.partition)

    def _find_if_known(self, part: ProduceOp) -> Topic | None:
        """The topic that has this partition, or None."""
        topic = self._state.registry.find(self._org, part.topic, part.topic_id)
        return topic if topic is not None and topic.has(part.partition) else None

    def _unknown(self, part: ProduceOp) -> ProduceOpResp:
        topic = self._state.registry.find(self._org, part.topic, part.topic_id)
        if topic is None:
            return _refusal(RecordsRefusedError(unknown_topic(part.topic, part.topic_id)))
        return _refusal(RecordsRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def _check(self, part: ProduceOp, topic: Topic | None) -> Verdict | ProduceOpResp | None:
        """The result of a batch's check; None if the check takes long."""
        if topic is None:
            return self._unknown(part)
        policy = self._state.configs.policy(topic)
        return self._state.admissions.check_now(policy, part.records, self._now_ms)

    async def _check_rest(self, verdicts: list[Verdict | ProduceOpResp | None]) -> None:
        """Check the unchecked batches: short ones here, in slices, long ones in a thread."""
        later: list[tuple[int, asyncio.Future[Verdict]]] = []
        slices = Slices(SHORT_RECORDS)
        try:
            for at, part in enumerate(self._op.partitions):
                if verdicts[at] is not None:
                    continue
                topic = self._find_if_known(part)
                verdicts[at] = self._check(part, topic)
                if topic is not None and verdicts[at] is None:
                    later.append((at, self._check_later(part, topic)))
                await slices.done(_PER_BATCH + claimed_records(part.records))
            for at, checked in later:
                verdicts[at] = await checked
        finally:
            for _, checked in later:
                checked.cancel()

    def _check_later(self, part: ProduceOp, topic: Topic) -> asyncio.Future[Verdict]:
        policy, spent = self._state.configs.policy(topic), self._spent or Spent()
        self._spent = spent
        return self._state.admissions.check_in_thread(
            self._org, policy, part.records, self._now_ms, spent
        )

    def _append(
        self, part: ProduceOp, topic: Topic | None, verdict: Verdict | ProduceOpResp | None
    ) -> _Begun:
        assert verdict is not None, "every batch has been checked"
        if isinstance(verdict, ProduceOpResp):
            return verdict
        if isinstance(verdict, BatchError):
            return _refusal(verdict)
        if topic is None:
            return self._unknown(part)
        state = self._state
        if not topic.source and state.stored_bytes.limit_reached(self._org, len(part.records)):
            return _refusal(RecordsRefusedError(ErrorCode.POLICY_VIOLATION, _FULL))
        partition = state.sources.partition(topic, part.partition)
        if topic.source and verdict.header.attributes & TRANSACTIONAL:
            return _refusal(
                RecordsRefusedError(ErrorCode.INVALID_TXN_STATE, "the topic takes no transactions")
            )
        try:
            appended = partition.append(verdict, self._writes, self._producer)
        except SequenceError as e:
            return _out_of_order(e, partition)
        except RecordsRefusedError as e:
            return _refusal(e)
        write = _Write(partition, verdict.header.record_count, uuid=topic.uuid)
        if isinstance(appended, Batch):
            write.repeated = appended
        else:
            write.pending = appended
        if verdict.header.attributes & LOG_APPEND_TIME:
            write.append_time = self._now_ms if write.repeated is None else write.repeated.timestamp
        return write


async def _finish(begun: list[_Begun]) -> list[ProduceOpResp]:
    """Wait for the answers to an op."""
    await _wait_for_last(begun)
    answers: list[ProduceOpResp] = []
    for write in begun:
        if isinstance(write, ProduceOpResp):
            answers.append(write)
        else:
            try:
                if write.pending is not None:
                    write.offset = (await write.pending)[0]
                    answers.append(_stored(write, write.offset))
                else:
                    assert write.repeated is not None
                    answers.append(_stored(write, await write.repeated.stored()))
            except (StorageError, RecordsRefusedError) as e:
                answers.append(_refusal(e))
            except SequenceError as e:
                answers.append(_out_of_order(e, write.partition))
        if not len(answers) % _ANSWERS_A_SLICE:
            await turn()
    return answers


async def _wait_for_last(begun: list[_Begun]) -> None:
    """Wait for the last append: the log answers in order, so the op continues once for all."""
    for write in reversed(begun):
        if isinstance(write, _Write) and write.pending is not None:
            if len(begun) > 1:
                with suppress(
                    StorageError, RecordsRefusedError, SequenceError
                ):  # `_finish` handles it
                    await write.pending
            return


def _stored(write: _Write, offset: int) -> ProduceOpResp:
    partition = write.partition
    return ProduceOpResp(
        offset,
        log_append_time=write.append_time,
        log_start_offset=partition.log_start,
        topic_id=write.uuid,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        leader_epoch=partition.leader_epoch,
        prompt=write.prompt,
    )


def _refusal(
    error: BatchError | SequenceError | RecordsRefusedError | StorageError,
) -> ProduceOpResp:
    message = error.message if isinstance(error, RecordsRefusedError) else str(error)
    named = error.records if isinstance(error, BatchError) else ()
    return ProduceOpResp(
        -1,
        error_code=_code_of(error),
        log_start_offset=-1,
        error_message=message,
        record_errors=[RecordError(*each) for each in named] or None,
    )


def _out_of_order(error: SequenceError, partition: PartitionSource) -> ProduceOpResp:
    # The Java client waits for the log start before it begins another epoch.
    return replace(_refusal(error), log_start_offset=partition.log_start)


def _code_of(error: BatchError | SequenceError | RecordsRefusedError | StorageError) -> ErrorCode:
    if isinstance(error, InDoubtError):
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    if isinstance(error, MovedError):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, StorageError) else error.code


def _describe(
    span: Span,
    op: ProduceOps,
    begun: list[_Begun],
    answers: list[ProduceOpResp],
) -> None:
    writes = [write for write in begun if isinstance(write, _Write)]
    span.set(
        {
            semconv.VIRTUAL_TOPIC: writes[0].partition.id.key if writes else "",
            semconv.PARTITIONS: len(answers),
            semconv.BASE_OFFSET: answers[0].base_offset if answers else -1,
            semconv.MESSAGE_COUNT: sum(write.records for write in writes),
            semconv.RECORD_BYTES: sum(len(part.records) for part in op.partitions),
        }
    )
    fail_with(span, (answer.error_code for answer in answers), type(op).__name__)


def _trace_writes(tracer: Tracer, commit: TraceContext | None, writes: list[WriteTimes]) -> None:
    """Trace the log's writes, which ops share; each trace has its own spans.

    The time from the start of the commit to that of the write was spent in the queue, until the
    previous write had ended.
    """
    for write in writes[:_WRITES_TRACED]:
        shared = {semconv.COMMIT_APPENDS: write.appends, semconv.COMMIT_BYTES: write.bytes}
        span = tracer.start(semconv.WAL_WRITE, commit, shared, begun=write.began)
        span.end(write.written)
        if write.synced > write.written:
            name = semconv.WAL_PUT if write.put else semconv.WAL_FSYNC
            span = tracer.start(name, commit, shared, begun=write.written)
            span.end(write.synced)


def _remember(state: BrokerState, trace: TraceContext, begun: list[_Begun]) -> None:
    """Record which trace wrote these batches, for the traces that fetch them."""
    written = [w for w in begun if isinstance(w, _Write) and w.offset is not None]
    for write in written[:MAX_LINKS]:
        assert write.offset is not None
        state.produced_by.record(write.partition.id, write.offset, trace)
