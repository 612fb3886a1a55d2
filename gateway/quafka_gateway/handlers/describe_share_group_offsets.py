"""DescribeShareGroupOffsets (key 90), versions 0-1: the offsets of share groups in partitions.

The start offset is that of the first record that is not dealt with; -1: the group has not begun
with the partition, or there is none. As in Kafka, a group that does not exist is no error: it has
begun nowhere. Version 1 adds the lag: the records from there on that were
not dealt with.
"""

from __future__ import annotations

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_GROUP, DESCRIBE_TOPIC, denied
from quafka_gateway.handlers.items import Items, Refused
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.shares import DescribeShareOffsets, ShareOffset, SharePlace
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

_PER_SLICE = 100
_ABSENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_OFFSETS = Items[SharePlace, ShareOffset](
    span="gateway.kafka.describe_share_group_offsets",
    right=DESCRIBE_TOPIC,
    route=RouteBy.SHARE,
    failed=lambda place, code, _message: ShareOffset(
        place.topic, place.topic_id, place.partition, error_code=code
    ),
    refused=Refused.FIRST,
)


async def handle(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Ask the brokers of the partitions, for each group."""
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
    slices = Slices(_PER_SLICE)
    for group in request.groups:
        groups.append(await _group(group, context))
        await slices.done()
    return DescribeShareGroupOffsetsResponse(groups=groups)


API = Api(
    key=90,
    versions=Versions(0, 1),
    request=DescribeShareGroupOffsetsRequest,
    handle=handle,
    items=_OFFSETS,
    access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.GROUPS | SeenState.SHARES | SeenState.TOPICS | SeenState.RECORDS),
    response_length=ResponseLength.LONG,
)


async def _group(
    group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    name = group.group_id
    code: int = ErrorCode.GROUP_AUTHORIZATION_FAILED
    message = DENIED
    if context.may(DESCRIBE_GROUP, name):
        try:
            return DescribeShareGroupOffsetsResponseGroup(
                group_id=name, topics=await _topics(await _offsets(group, context))
            )
        except BrokerUnavailableError as e:
            code, message = e.code_or(ErrorCode.COORDINATOR_NOT_AVAILABLE), str(e)
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=name, error_code=code, error_message=message or None
    )


async def _offsets(
    group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> list[ShareOffset]:
    """The group's offsets, in the requested partitions or in all that the client may know."""
    if group.topics is None:
        with context.child(_OFFSETS.span) as span:
            every = await context.tenant.shares.describe(group.group_id, span.context)
        hidden = await denied((each.topic for each in every), DESCRIBE_TOPIC, context)
        return await listed(each for each in every if each.topic not in hidden)
    return await _OFFSETS.answers(
        (
            SharePlace(each.topic_name, number)
            for each in group.topics
            for number in each.partitions
        ),
        lambda its: DescribeShareOffsets(group.group_id, its),
        lambda resp: resp.partitions,
        context,
    )


async def _topics(found: list[ShareOffset]) -> list[DescribeShareGroupOffsetsResponseTopic]:
    topics: dict[str, DescribeShareGroupOffsetsResponseTopic] = {}
    slices = Slices(_PER_SLICE)
    for each in found:
        topic = topics.setdefault(
            each.topic, DescribeShareGroupOffsetsResponseTopic(topic_name=each.topic)
        )
        topic.topic_id = each.topic_id or topic.topic_id
        code = 0 if each.error_code in _ABSENT else each.error_code
        topic.partitions.append(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition,
                start_offset=each.start,
                leader_epoch=max(0, each.leader_epoch),
                lag=each.lag,
                error_code=code,
                error_message=ErrorCode(code).name if code else None,
            )
        )
        await slices.done()
    return list(topics.values())
