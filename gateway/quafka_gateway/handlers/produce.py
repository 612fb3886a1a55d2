"""Produce (key 0), versions 0-13: appends record batches; answered when they are durable.

Versions 0 to 2 carry message sets, and each message set becomes one batch here. Kafka 4 refuses
these versions and still advertises them, because librdkafka would turn features off without them
(KAFKA-18659). From version 3 on a partition has one batch, which goes to the broker unchanged. The
broker checks the whole batch, because it need not trust a gateway; the gateway checks only what
depends on the version. With acks=0 there is no response. Versions 13 and up name topics by id.

Transactional batches need the request's transactional id. Their producer is fenced with
INVALID_PRODUCER_EPOCH. From version 12 on the produce adds its partitions to the transaction
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import message_sets
from quafka_gateway.handlers.authorized import WRITE_TOPIC, WRITE_TRANSACTION, refusals
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.produce_responses import partition_response
from quafka_gateway.handlers.repeated_produce import RepeatedProduce
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.security.authorizer import ClientAccess
from quafka_gateway.tenant import Tenant
from quafka_loop import clock
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps
from quafka_proto.compression import Codec
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.message import Versions
from quafka_proto.records import claims, is_transactional, read_header
from quafka_proto.schema.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quafka_telemetry import semconv
from quafka_telemetry.destinations import OffsetRange
from quafka_telemetry.tracing import Span, fail_with

_NO_ID = bytes(16)
_FIRST_WITH_BATCHES, _FIRST_WITH_ZSTD, _FIRST_IMPLICIT = 3, 7, 12

_Append: TypeAlias = Callable[
    [ProduceRequest, list[ProduceOp], RequestContext, Span], Awaitable[list[ProduceOpResp]]
]
_MANY = 2_000
"""A request with this many partitions is alone in its lane (`request_decoding.order_of`). Only then
may its handler yield to other work before the op is sent: a later request cannot pass it."""


async def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Append to each partition; return when the records are durable."""
    quotas = context.quotas
    if quotas is not None and quotas.produce is not None:
        seconds = quotas.produce.charge(context.size, clock.monotonic())
        if seconds:
            context.throttle(QuotaKind.PRODUCE, seconds)
    with context.child(semconv.GATEWAY_PRODUCE) as span:
        count = 0
        for topic in request.topic_data:
            count += len(topic.partition_data)
        is_long = count >= _MANY
        code = _invalid(request, context)
        if not code and count > 1 and await _names_a_partition_twice(request, count, is_long):
            code = ErrorCode.INVALID_REQUEST
        parts = _partitions(request)
        ops = await listed(parts) if is_long else list(parts)
        if code:
            answers = [_refused(code)] * count
        else:
            append = _append_message_sets if context.version < _FIRST_WITH_BATCHES else _append
            if context.access is not None:
                append = partial(_append_allowed, append, context.access)
            answers = await append(request, ops, context, span)
        if span.context is not None:
            span.set({semconv.PARTITIONS: len(answers), semconv.ACKS: request.acks})
            written = map(_written, ops, answers) if context.version >= _FIRST_WITH_BATCHES else ()
            describe_partitions(span, ops, context, written)
            fail_with(span, (answer.error_code for answer in answers), "Produce")
    if request.acks == 0:
        return None
    partitions = map(partial(partition_response, context.version), ops, answers)
    responses = _topics(request, await listed(partitions) if is_long else list(partitions))
    return ProduceResponse(responses=await listed(responses) if is_long else list(responses))


def _written(op: ProduceOp, answer: ProduceOpResp) -> OffsetRange | None:
    """The offsets of a request's records, as far as the producer knows them (not with acks=0)."""
    if answer.error_code or answer.base_offset < 0:
        return None
    _, count = claims(op.records)
    return answer.base_offset, answer.base_offset + max(1, count) - 1


def _is_unready(request: ProduceRequest, tenant: Tenant) -> bool:
    """Whether the name of a topic must be looked up before the op is sent."""
    known = tenant.names.known
    return any(
        topic.topic_id != _NO_ID and known(topic.topic_id) is None for topic in request.topic_data
    )


API = Api(
    key=0,
    versions=Versions(0, 13),
    request=ProduceRequest,
    handle=handle,
    access=(WRITE_TOPIC, WRITE_TRANSACTION),
    order=Order(
        reads=SeenState.TOPICS | SeenState.CONFIGS,
        writes=SeenState.RECORDS | SeenState.PRODUCERS | SeenState.TRANSACTIONS,
        in_lane=True,
    ),
    is_unready=_is_unready,
    predict=RepeatedProduce.after,
)


def _topics(
    request: ProduceRequest, partitions: list[PartitionProduceResponse]
) -> Iterator[TopicProduceResponse]:
    """The answers of each topic. `partitions`: those of all topics, in the request's order."""
    at = 0
    for topic in request.topic_data:
        end = at + len(topic.partition_data)
        yield TopicProduceResponse(topic.name, topic.topic_id, partitions[at:end])
        at = end


async def _append(
    request: ProduceRequest, partitions: list[ProduceOp], context: RequestContext, span: Span
) -> list[ProduceOpResp]:
    if context.version < _FIRST_WITH_ZSTD and any(map(_is_zstd, partitions)):
        return await _append_but_zstd(request, partitions, context, span)
    name = request.transactional_id
    if name:
        implicit = context.version >= _FIRST_IMPLICIT
        op = ProduceOps(partitions, request.acks, name, implicit, context.connection)
    else:
        op = ProduceOps(partitions, acks=request.acks)
    tenant, timeout = context.tenant, request.timeout_ms / 1000
    answers = await tenant.topics.produce(op, context.lane, timeout, span.context)
    tenant.reader.produce_acknowledged(op, answers)
    return answers


async def _append_allowed(
    append: _Append,
    access: ClientAccess,
    request: ProduceRequest,
    partitions: list[ProduceOp],
    context: RequestContext,
    span: Span,
) -> list[ProduceOpResp]:
    """Append to the topics that the client may write to."""
    codes = _known_refusals(access, partitions, context)
    if codes is None:
        topics = [(part.topic, part.topic_id) for part in partitions]
        refused = await refusals(topics, WRITE_TOPIC, context, span.context)
        codes = [refused.get(topic, 0) for topic in topics]
    if not any(codes):
        return await append(request, partitions, context, span)
    good = [part for part, code in zip(partitions, codes, strict=True) if not code]
    stored = iter(await append(request, good, context, span) if good else ())
    return [_refused(ErrorCode(code)) if code else next(stored) for code in codes]


def _known_refusals(
    access: ClientAccess, partitions: list[ProduceOp], context: RequestContext
) -> list[int] | None:
    """The error code of each partition; None: it takes time, or a name must be looked up."""
    if len(partitions) >= _MANY:
        return None
    codes: list[int] = []
    known = context.tenant.names.known
    for part in partitions:
        name = part.topic or known(part.topic_id)
        if name is None:
            return None
        allowed = access.allows(WRITE_TOPIC, name)
        codes.append(0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return codes


async def _append_but_zstd(
    request: ProduceRequest, partitions: list[ProduceOp], context: RequestContext, span: Span
) -> list[ProduceOpResp]:
    good = [part for part in partitions if not _is_zstd(part)]
    stored = iter(await _append(request, good, context, span) if good else ())
    message = f"zstd needs version {_FIRST_WITH_ZSTD} of Produce (KIP-110)"
    return [
        _refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
        if _is_zstd(part)
        else next(stored)
        for part in partitions
    ]


def _is_zstd(part: ProduceOp) -> bool:
    with suppress(Malformed):  # the broker refuses it
        return read_header(part.records).codec == Codec.ZSTD
    return False


async def _append_message_sets(
    request: ProduceRequest, partitions: list[ProduceOp], context: RequestContext, span: Span
) -> list[ProduceOpResp]:
    """Append the message sets that can be converted."""
    converted = await message_sets.from_producer(
        [part.records for part in partitions], context.services.converter
    )
    good = [
        replace(part, records=batches)
        for part, batches in zip(partitions, converted, strict=True)
        if not isinstance(batches, BatchError)
    ]
    stored = iter(await _append(request, good, context, span) if good else ())
    return [
        _refused(batches.code, str(batches)) if isinstance(batches, BatchError) else next(stored)
        for batches in converted
    ]


def _refused(code: ErrorCode, message: str = "") -> ProduceOpResp:
    return ProduceOpResp(-1, error_code=code, log_start_offset=-1, error_message=message)


def _partitions(request: ProduceRequest) -> Iterator[ProduceOp]:
    return (
        ProduceOp(topic.name, partition.index, partition.records or b"", _topic_id(topic.topic_id))
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _invalid(request: ProduceRequest, context: RequestContext) -> ErrorCode:
    """Why a request is wrong as a whole; NONE for a good request."""
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    name = request.transactional_id
    if name and context.may(WRITE_TRANSACTION, name):
        return ErrorCode.NONE
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None and is_transactional(partition.records):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _names_a_partition_twice(request: ProduceRequest, count: int, is_long: bool) -> bool:
    """Whether one of `count` partitions has several batches. No client sends that."""
    topics = request.topic_data
    places = ((t.name, t.topic_id, p.index) for t in topics for p in t.partition_data)
    named = set(await listed(places) if is_long else places)
    return len(named) < count


def _topic_id(topic_id: bytes) -> bytes:
    return topic_id if topic_id != _NO_ID else b""
