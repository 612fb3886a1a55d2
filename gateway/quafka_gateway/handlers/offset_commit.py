"""OffsetCommit (key 8), versions 0-10: commits offsets; answered when they are durable.

Version 0 meant offsets kept in ZooKeeper; here they are kept like all others. How long offsets are
kept is the broker's setting: the retention time of the request (versions 2 to 4) is ignored.
Version 10 names topics by id.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from itertools import repeat
from types import MappingProxyType

from quafka_gateway.cluster.catalog import NamedTopic
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP, READ_TOPIC, refusals
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_loop.slices import at_once, in_slices
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_proto.codec import encode_in_steps
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_MANY = 500
"""A request with more partitions is handled in slices."""


async def handle(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | EncodedResponse:
    """Commit the offset of each partition."""
    by_id = context.version >= 10
    if not context.may(READ_GROUP, request.group_id):
        return await in_slices(_response(request, repeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    topics = ((topic.name, topic.topic_id if by_id else b"") for topic in request.topics)
    refused = await refusals(topics, READ_TOPIC, context, context.trace)
    offsets = _offsets(request, refused, by_id=by_id)
    is_long = _is_long(request)
    op = CommitOffsets(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id or "",
        await in_slices(offsets) if is_long else at_once(offsets),
        knows_member_epochs=context.version >= 9,
    )
    with context.child("gateway.kafka.offset_commit") as span:
        describe_partitions(span, op.offsets, context)
        none = bool(refused) and not op.offsets
        errors = (
            []
            if none
            else await context.tenant.groups.of(op.group).commit_offsets(op, span.context)
        )
    response = _response(request, iter(errors), refused, by_id=by_id)
    if not is_long:
        return at_once(response)
    body = await in_slices(encode_in_steps(await in_slices(response), context.version))
    return EncodedResponse(
        OffsetCommitResponse, body, frozenset((*errors, *refused.values())) - {0}
    )


def _is_long(request: OffsetCommitRequest) -> bool:
    if len(request.topics) > _MANY:
        return True
    return sum(len(topic.partitions) for topic in request.topics) > _MANY


API = Api(
    key=8,
    versions=Versions(0, 10),
    request=OffsetCommitRequest,
    handle=handle,
    access=(READ_GROUP, READ_TOPIC),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.OFFSETS | SeenState.GROUPS),
)


def _offsets(
    request: OffsetCommitRequest, refused: Mapping[NamedTopic, int], *, by_id: bool
) -> Generator[None, None, list[CommitOffset]]:
    found: list[CommitOffset] = []
    for topic in request.topics:
        if refused and (topic.name, topic.topic_id if by_id else b"") in refused:
            continue
        for partition in topic.partitions:
            found.append(
                CommitOffset(
                    topic.name,
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    topic.topic_id if by_id else b"",
                )
            )
            yield
    return found


def _response(
    request: OffsetCommitRequest,
    errors: Iterator[int],
    refused: Mapping[NamedTopic, int] = MappingProxyType({}),
    *,
    by_id: bool = False,
) -> Generator[None, None, OffsetCommitResponse]:
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions: list[OffsetCommitResponsePartition] = []
        code = refused.get((topic.name, topic.topic_id if by_id else b"")) if refused else None
        for partition in topic.partitions:
            partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=next(errors) if code is None else code,
                )
            )
            yield
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return OffsetCommitResponse(topics=topics)
