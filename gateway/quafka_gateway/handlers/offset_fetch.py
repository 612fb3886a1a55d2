"""OffsetFetch (key 9), versions 0-10: committed offsets; of one group up to version 7 (KIP-709).

An offset that was never committed is -1 without an error, and so are all offsets of an unknown
group. Null topics (from version 2 on) mean all topics; version 10 names topics by id. Where a
request names a group twice, the last mention counts. With `require_stable` (version 7 and up), an
offset that an open transaction may change is UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import groupby, islice
from typing import TypeVar

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_GROUP, DESCRIBE_TOPIC, denied, refusals
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.group_offsets import (
    CommittedOffset,
    CommittedOffsets,
    CommittedOffsetsResp,
    CommittedQuestion,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_GROUPS_AT_A_TIME = 32


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Look up the offsets of each group at its coordinator."""
    if context.version < 8:
        return await _one_group(request, context)
    groups = dict(await listed((group.group_id, group) for group in request.groups))
    found: list[OffsetFetchResponseGroup] = []
    for some in _batched(groups.values(), _GROUPS_AT_A_TIME):
        found += await asyncio.gather(
            *(_group(group, context, stable=request.require_stable) for group in some)
        )
    return OffsetFetchResponse(groups=found)


API = Api(
    key=9,
    versions=Versions(0, 10),
    request=OffsetFetchRequest,
    handle=handle,
    access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    order=Order(
        reads=SeenState.OFFSETS | SeenState.GROUPS | SeenState.TOPICS | SeenState.TRANSACTIONS
    ),
    response_length=ResponseLength.BY_REQUEST,
)


def _batched(
    groups: Iterable[OffsetFetchRequestGroup], size: int
) -> Iterator[list[OffsetFetchRequestGroup]]:
    """Yield the groups in lists of `size`."""
    rest = iter(groups)
    while some := list(islice(rest, size)):
        yield some


async def _one_group(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    topics = request.topics
    questions = (
        None
        if topics is None
        else await listed(CommittedQuestion(each.name, each.partition_indexes) for each in topics)
    )
    answer = await _ask(
        CommittedOffsets(request.group_id, questions, request.require_stable), context
    )
    offsets = answer.offsets
    if answer.error_code and context.version < 2:
        # The response has no error of the group: each partition carries it.
        offsets = await listed(
            CommittedOffset(topic.name, b"", partition, error_code=answer.error_code)
            for topic in topics or []
            for partition in topic.partition_indexes
        )
    by_topic = await in_slices(_by_topic(offsets, OffsetFetchResponsePartition))
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=await listed(
            OffsetFetchResponseTopic(name=name, partitions=partitions)
            for (name, _), partitions in by_topic
        ),
    )


Partition = TypeVar("Partition", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


def _by_topic(
    offsets: list[CommittedOffset], make: type[Partition]
) -> Generator[None, None, list[tuple[tuple[str, bytes], list[Partition]]]]:
    """Return adjacent offsets of one topic (name and id) together, as Kafka's partitions."""
    found: list[tuple[tuple[str, bytes], list[Partition]]] = []
    for topic, some in groupby(offsets, lambda each: (each.topic, each.topic_id)):
        partitions: list[Partition] = []
        for each in some:
            partitions.append(
                make(
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
            )
            yield
        found.append((topic, partitions))
    return found


async def _group(
    group: OffsetFetchRequestGroup, context: RequestContext, *, stable: bool
) -> OffsetFetchResponseGroup:
    by_id = context.version >= 10
    questions = (
        None
        if group.topics is None
        else await listed(
            CommittedQuestion(t.name, t.partition_indexes, t.topic_id if by_id else b"")
            for t in group.topics
        )
    )
    op = CommittedOffsets(group.group_id, questions, stable, group.member_id, group.member_epoch)
    answer = await _ask(op, context)
    by_topic = await in_slices(_by_topic(answer.offsets, OffsetFetchResponsePartitions))
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=answer.error_code,
        topics=await listed(
            OffsetFetchResponseTopics(
                name=name, topic_id=topic_id or bytes(16), partitions=partitions
            )
            for (name, topic_id), partitions in by_topic
        ),
    )


async def _ask(op: CommittedOffsets, context: RequestContext) -> CommittedOffsetsResp:
    """The offsets that the client may know, with errors for the others that it named."""
    if not context.may(DESCRIBE_GROUP, op.group):
        return CommittedOffsetsResp([], ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with context.child("gateway.kafka.offset_fetch") as span:
        committed = context.tenant.groups.of(op.group).committed_offsets
        if op.topics is None:
            answer = await committed(op, span.context)
            topics = (each.topic for each in answer.offsets)
            hidden = await denied(topics, DESCRIBE_TOPIC, context)
            shown = await listed(each for each in answer.offsets if each.topic not in hidden)
            return replace(answer, offsets=shown) if hidden else answer
        named = ((each.topic, each.topic_id) for each in op.topics)
        refused = await refusals(named, DESCRIBE_TOPIC, context, span.context)
        if not refused:
            return await committed(op, span.context)
        allowed = await listed(
            each for each in op.topics if (each.topic, each.topic_id) not in refused
        )
        answer = CommittedOffsetsResp([])
        if allowed:
            answer = await committed(replace(op, topics=allowed), span.context)
        if answer.error_code:
            return answer
    errors = await listed(
        CommittedOffset(each.topic, each.topic_id, partition, error_code=code)
        for each in op.topics
        if (code := refused.get((each.topic, each.topic_id)))
        for partition in each.partitions
    )
    return replace(answer, offsets=[*answer.offsets, *errors])
