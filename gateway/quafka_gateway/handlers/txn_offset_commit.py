"""TxnOffsetCommit (key 28), versions 0-5: offsets that count when the transaction commits.

Version 3 and up name the member of the group, so that offsets of an earlier generation are refused
(KIP-447). Version 5 adds the group to the transaction by itself (KIP-890).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from itertools import repeat

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP, READ_TOPIC, WRITE_TRANSACTION, denied
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.transaction_errors import NEVER, NewErrors
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.group_offsets import CommitOffset
from quafka_mesh_ops.ops.transactions import CommitTxnOffsets, TransactionalProducer
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_IMPLICIT = 5
_FIRST_WITH_LOADING = 2
_ERRORS = NewErrors(fenced=NEVER, abortable=4)


async def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Store the offsets with the transaction, durably."""
    refusal = 0
    if not context.may(WRITE_TRANSACTION, request.transactional_id):
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.may(READ_GROUP, request.group_id):
        refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if refusal:
        return await in_slices(_response(request, repeat(refusal), context.version))
    hidden = await denied((topic.name for topic in request.topics), READ_TOPIC, context)
    offsets = (
        CommitOffset(
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for topic in request.topics
        if topic.name not in hidden
        for partition in topic.partitions
    )
    op = CommitTxnOffsets(
        TransactionalProducer(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            context.connection,
        ),
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id or "",
        await listed(offsets),
        implicit=context.version >= _FIRST_IMPLICIT,
    )
    with context.child("gateway.kafka.txn_offset_commit") as span:
        describe_partitions(span, op.offsets, context)
        none = bool(hidden) and not op.offsets
        codes = (
            []
            if none
            else await context.tenant.groups.of(op.group).commit_offsets(op, span.context)
        )
    return await in_slices(_response(request, codes, context.version, hidden))


API = Api(
    key=28,
    versions=Versions(0, 5),
    request=TxnOffsetCommitRequest,
    handle=handle,
    access=(WRITE_TRANSACTION, READ_GROUP, READ_TOPIC),
    order=Order(
        reads=SeenState.TOPICS,
        writes=SeenState.OFFSETS | SeenState.GROUPS | SeenState.TRANSACTIONS | SeenState.PRODUCERS,
    ),
    response_length=ResponseLength.BY_REQUEST,
)


def _response(
    request: TxnOffsetCommitRequest,
    codes: Iterable[int],
    version: int,
    hidden: Collection[str] = (),
) -> Generator[None, None, TxnOffsetCommitResponse]:
    rest = iter(codes)
    topics = yield from topic_results(
        ((topic.name, topic.partitions) for topic in request.topics),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.name in hidden else next(rest)
            for topic in request.topics
            for _ in topic.partitions
        ),
        lambda part, code: TxnOffsetCommitResponsePartition(
            part.partition_index, _code(code, version)
        ),
        TxnOffsetCommitResponseTopic,
    )
    return TxnOffsetCommitResponse(topics=topics)


def _code(code: int, version: int) -> int:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # the other one crashes clients (KAFKA-7296)
    return _ERRORS.code(code, version)
