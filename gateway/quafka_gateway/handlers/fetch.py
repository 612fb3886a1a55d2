"""Fetch (key 1), versions 0-18: records of partitions, as the stored batches.

Long poll. One request becomes one op that carries all its partitions, also those that only its
fetch session lists (`fetch/session.py`). The broker parks the op, where the append happens, until
min_bytes can be read or max_wait_ms has passed. Stored batches pass through unchanged; versions 0
to 3 are answered with message sets. Versions 13 and up name topics by id. Every partition has one
replica, so the client's rack is ignored and the preferred replica is always -1.

A client that has read more than its quota is answered without partitions (KIP-219), and asks again
after `throttle_time_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby

from quafka_gateway.context import RequestContext
from quafka_gateway.fetch.file_slice import base_offset, end_offset, first_bytes
from quafka_gateway.fetch.idle_fetch import IdleFetch, SessionEpoch
from quafka_gateway.fetch.requested_partitions import replica_id, requested_in_steps
from quafka_gateway.fetch.session import Fetch
from quafka_gateway.handlers import message_sets
from quafka_gateway.handlers.authorized import (
    CLUSTER_ACTION,
    READ_TOPIC,
    may_on_cluster,
    refusals,
    rule_changes,
)
from quafka_gateway.handlers.client_context import context_of_batch
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.repeated_poll import RepeatedPoll
from quafka_gateway.quotas.client import RateQuota
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.security.authorizer import ClientAccess
from quafka_loop import clock
from quafka_loop.slices import in_slices
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from quafka_proto.schema.produce import LeaderIdAndEpoch, NodeEndpoint
from quafka_telemetry import semconv
from quafka_telemetry.destinations import OffsetRange
from quafka_telemetry.tracing import MAX_LINKS, Span, TraceContext, fail_with

_FIRST_WITH_BATCHES = 4
_FIRST_WITH_LEADERS = 16
_MAX_WAIT_MS = 60_000
_MAX_BYTES = 57_671_680  # Kafka's fetch.max.bytes, 55 MiB: what one response may hold
_FEW = 200
"""The rights on this many partitions are looked up without yielding to others."""
_NO_ID = bytes(16)
# Shared by all partitions of all responses: to make them costs more than the rest of a partition.
_NOT_DIVERGING, _NO_LEADER, _NO_SNAPSHOT = EpochEndOffset(), LeaderIdAndEpoch(), SnapshotId()
_NO_PREFERRED_REPLICA = -1
_Pair = tuple[FetchOp, FetchOpResp]


async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Read from each partition of the request or of its fetch session."""
    now = asyncio.get_running_loop().time
    sessions = context.tenant.fetch_sessions
    wanted = await in_slices(requested_in_steps(request, context.version))
    fetch = sessions.begin(request, context.version, now(), context.client_host, wanted)
    if fetch.error:
        return FetchResponse(error_code=fetch.error)
    quotas = context.quotas
    quota = None if quotas is None else quotas.fetch
    op = _op(request, fetch.ops, _MAX_BYTES if quota is None else int(quota.burst))
    wait_ms = op.max_wait_ms
    if context.waited:
        op = replace(op, max_wait_ms=max(0, wait_ms - round(context.waited * 1000)))
    with context.child(semconv.GATEWAY_FETCH) as span:
        answers = await read(op, context, span)
        if span.context is not None:
            _describe(span, fetch.ops, answers, context)
            span.link(_produced_by(context, fetch.ops, answers))
    if quota is not None and _over_quota(quota, answers, context):
        error, session_id, _ = fetch.throttled()
        return FetchResponse(error_code=error, session_id=session_id)
    if context.version < _FIRST_WITH_BATCHES:
        answers = await message_sets.for_consumer(
            fetch.ops, answers, context.version, context.services.converter
        )
    error, session_id, partitions = fetch.finish(answers, now())
    response = FetchResponse(
        error_code=error, session_id=session_id, responses=await in_slices(_topics(partitions))
    )
    if context.version >= _FIRST_WITH_LEADERS:
        _add_leaders(response, partitions, context)
    if fetch.repeatable and not error and not any(answer.records for answer in answers):
        context.idle = _idle(fetch, op, wait_ms / 1000, answers, response, context)
    return response


API = Api(
    key=1,
    versions=Versions(0, 18),
    request=FetchRequest,
    handle=handle,
    access=(READ_TOPIC, CLUSTER_ACTION),
    order=Order(
        reads=SeenState.RECORDS | SeenState.TOPICS, writes=SeenState.FETCH_SESSIONS, long_poll=True
    ),
    predict=RepeatedPoll.after,
)


async def read(op: FetchOps, context: RequestContext, span: Span) -> list[FetchOpResp]:
    """Return one answer for each partition of the op; without partitions, call no broker."""
    if not op.partitions:
        return []
    if context.access is not None:
        return await _read_allowed(op, context.access, context, span)
    return await context.tenant.reader.fetch(op, span.context)


async def _read_allowed(
    op: FetchOps, access: ClientAccess, context: RequestContext, span: Span
) -> list[FetchOpResp]:
    """Read from the topics that the client may read, as the rules are when the answer is made.

    A fetch may be parked for a minute, and the right may be revoked meanwhile.
    """
    changed = rule_changes(context)
    codes = await _refusals(op, access, context, span)
    if not any(codes):
        answers = await context.tenant.reader.fetch(op, span.context)
    else:
        wanted = zip(op.partitions, codes, strict=True)
        good = replace(op, partitions=[part for part, code in wanted if not code])
        read = context.tenant.reader.fetch
        found = iter(await read(good, span.context) if good.partitions else ())
        answers = [_refused(code) if code else next(found) for code in codes]
    while changed():
        codes = await _refusals(op, access, context, span)
        if codes:
            pairs = zip(codes, answers, strict=True)
            answers = [_refused(code) if code else answer for code, answer in pairs]
    return answers


async def _refusals(
    op: FetchOps, access: ClientAccess, context: RequestContext, span: Span
) -> Sequence[int]:
    """The error code of each partition, as far as the client's rights are concerned."""
    parts = op.partitions
    if op.replica_id >= 0:
        allowed = may_on_cluster(CLUSTER_ACTION, context)
        return [0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(parts)
    known = context.tenant.names.known
    if len(parts) <= _FEW:
        names = [part.topic or known(part.topic_id) for part in parts]
        if None not in names and all(access.allows(READ_TOPIC, name or "") for name in names):
            return ()
    topics = ((part.topic, part.topic_id) for part in parts)
    refused = await refusals(topics, READ_TOPIC, context, span.context)
    return [refused.get((part.topic, part.topic_id), 0) for part in parts] if refused else ()


def _refused(code: int) -> FetchOpResp:
    return FetchOpResp([], -1, code)


def _idle(
    fetch: Fetch,
    op: FetchOps,
    wait: float,
    answers: list[FetchOpResp],
    response: FetchResponse,
    context: RequestContext,
) -> IdleFetch | None:
    """What the next request of this client needs if it is the same; None: it is served as any.

    `wait`: the seconds that the client lets each request wait.
    """
    reader = context.tenant.reader.only
    keys = None if reader is None or not answers else reader.tail_of(op, answers)
    if reader is None or keys is None:
        return None
    session = None
    if fetch.session is not None:
        session = SessionEpoch(context.tenant.fetch_sessions.table, fetch.session)
        response = FetchResponse(session_id=fetch.session.id)
    unchanged = None if context.access is None else context.access.until_changed()
    return IdleFetch(
        reader.standing, op.partitions, keys, wait, session, response, context.version, unchanged
    )


def _over_quota(quota: RateQuota, answers: list[FetchOpResp], context: RequestContext) -> bool:
    """Charge the records; return whether they must not be sent.

    Records that exceed the whole quota are sent if nothing else was: otherwise they never would be.
    """
    size, now = sum(len(batch) for answer in answers for batch in answer.records), clock.monotonic()
    first = quota.is_unused(now)
    seconds = quota.charge(size, now)
    if not seconds:
        return False
    context.throttle(QuotaKind.FETCH, seconds)
    if first:
        return False
    quota.refund(size, now)
    return True


def _op(request: FetchRequest, partitions: list[FetchOp], most: int) -> FetchOps:
    """The op of a fetch that may answer with `most` bytes."""
    max_bytes = min(request.max_bytes, most, _MAX_BYTES)
    return FetchOps(
        partitions,
        max_wait_ms=max(0, min(request.max_wait_ms, _MAX_WAIT_MS)),
        min_bytes=min(request.min_bytes, max(1, most)) if most < _MAX_BYTES else request.min_bytes,
        max_bytes=max_bytes,
        isolation_level=request.isolation_level,
        replica_id=replica_id(request),
    )


def _add_leaders(response: FetchResponse, partitions: list[_Pair], context: RequestContext) -> None:
    """Name the leader to clients with an old leader epoch: spares a Metadata request (KIP-951)."""
    fenced = ErrorCode.FENCED_LEADER_EPOCH
    if not any(answer.error_code == fenced for _, answer in partitions):
        return
    found = chain.from_iterable(topic.partitions for topic in response.responses)
    for (_, answer), partition in zip(partitions, found, strict=True):
        if answer.error_code == fenced and answer.leader_epoch >= 0:
            partition.current_leader = LeaderIdAndEpoch(context.node_id, answer.leader_epoch)
    response.node_endpoints = [NodeEndpoint(context.node_id, *context.session.advertised)]


def _topics(partitions: list[_Pair]) -> Generator[None, None, list[FetchableTopicResponse]]:
    """Put adjacent partitions of one topic into one entry; keep the order of the request."""
    topics: list[FetchableTopicResponse] = []
    for (name, topic_id), pairs in groupby(partitions, _topic_of):
        described: list[PartitionData] = []
        for op, answer in pairs:
            described.append(_partition(op.partition, answer))
            yield
        topics.append(FetchableTopicResponse(name, topic_id or _NO_ID, described))
    return topics


def _topic_of(pair: _Pair) -> tuple[str, bytes]:
    op, _ = pair
    return op.topic, op.topic_id


def _partition(index: int, answer: FetchOpResp) -> PartitionData:
    aborted, end = answer.aborted_transactions, answer.diverging_epoch
    # By position: keyword arguments would cost as much as the encoding of thousands of partitions.
    return PartitionData(
        index,
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        _NOT_DIVERGING if end is None else EpochEndOffset(end.leader_epoch, end.end_offset),
        _NO_LEADER,
        _NO_SNAPSHOT,
        None
        if aborted is None
        else [AbortedTransaction(each.producer_id, each.first_offset) for each in aborted],
        _NO_PREFERRED_REPLICA,
        answer.records,
    )


def _describe(
    span: Span, ops: list[FetchOp], answers: list[FetchOpResp], context: RequestContext
) -> None:
    returned = sum(len(batch) for answer in answers for batch in answer.records)
    span.set({semconv.PARTITIONS: len(answers), semconv.RECORD_BYTES: returned})
    describe_partitions(span, ops, context, map(_delivered, answers))
    fail_with(span, (answer.error_code for answer in answers), "Fetch")


def _delivered(answer: FetchOpResp) -> OffsetRange | None:
    batches = answer.records
    return (base_offset(batches[0]), end_offset(batches[-1]) - 1) if batches else None


def _produced_by(
    context: RequestContext, ops: list[FetchOp], answers: list[FetchOpResp]
) -> Iterator[TraceContext]:
    """Yield the traces that produced the returned batches: known ones, else from record headers."""
    for op, answer in zip(ops, answers, strict=True):
        known = list(context.tenant.reader.produced_by(op, answer))
        yield from known
        if not known:
            for batch in answer.records[:MAX_LINKS]:
                found = context_of_batch(first_bytes(batch))
                if found is not None:
                    yield found.context
