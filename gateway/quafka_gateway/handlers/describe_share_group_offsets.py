"""DescribeShareGroupOffsets (key 90), versions 0-1: the offsets of share groups in partitions.

The start offset is that of the first record that is not dealt with; -1: the group has not begun
with the partition, or there is none. As in Kafka, a group that does not exist is no error: it has
begun nowhere. Version 1 adds the lag: the records from there on that were
not dealt with.
"""

from __future__ import annotations

from typing import NamedTuple

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.cluster import RouteBy, Send
from quafka_gateway.cluster.shares import share_offsets
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_GROUP, DESCRIBE_TOPIC, denied
from quafka_gateway.handlers.items import Items, Refused
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.shares import ShareGroupPlaces, ShareOffset, SharePlace
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from quafka_telemetry.tracing import TraceContext

_PER_SLICE = 100
_Error = tuple[int, str | None]
_NO_ERROR: _Error = (0, None)
_ABSENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class _Place(NamedTuple):
    """A partition, and the place of its group in the request."""

    group: int
    partition: SharePlace

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.partition.topic


_Found = tuple[int, ShareOffset]
"""The place of the group in the request, and its offset in a partition."""
_OFFSETS = Items[_Place, _Found](
    span="gateway.kafka.describe_share_group_offsets",
    right=DESCRIBE_TOPIC,
    route=RouteBy.SHARE,
    failed=lambda place, code, _message: (
        place.group,
        ShareOffset(place.topic, b"", place.partition.partition, error_code=code),
    ),
    refused=Refused.FIRST,
)


async def handle(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Ask the brokers of the partitions, for all groups at once."""
    hidden = await denied((each.group_id for each in request.groups), DESCRIBE_GROUP, context)
    known = await listed(
        (at, group) for at, group in enumerate(request.groups) if group.group_id not in hidden
    )
    whole = await listed(at for at, group in known if group.topics is None)
    offsets, unanswered = await _of_groups(whole, request, context)
    named = await listed(
        _Place(at, SharePlace(topic.topic_name, partition))
        for at, group in known
        for topic in group.topics or ()
        for partition in topic.partitions
    )
    slices = Slices(_PER_SLICE)
    if named:
        for at, offset in await _of_partitions(named, request, context):
            offsets.setdefault(at, []).append(offset)
            await slices.done()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
    for at, group in enumerate(request.groups):
        code, message = _NO_ERROR
        if group.group_id in hidden:
            code, message = ErrorCode.GROUP_AUTHORIZATION_FAILED, DENIED
        elif group.topics is None:
            code, message = unanswered
        groups.append(
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id,
                topics=await _topics(offsets.get(at, [])),
                error_code=code,
                error_message=message,
            )
        )
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


async def _of_partitions(
    places: list[_Place], request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> list[_Found]:
    async def call(send: Send, its: list[_Place], _trace: TraceContext | None) -> list[_Found]:
        of_group: dict[int, list[SharePlace]] = {}
        for each in its:
            of_group.setdefault(each.group, []).append(each.partition)
        groups = await listed(
            ShareGroupPlaces(request.groups[number].group_id, partitions)
            for number, partitions in of_group.items()
        )
        found = zip(of_group, await share_offsets(send, groups), strict=True)
        return await listed((number, offset) for number, its in found for offset in its)

    return await _OFFSETS.answers_by(call, places, context)


async def _of_groups(
    places: list[int], request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> tuple[dict[int, list[ShareOffset]], _Error]:
    """The groups' offsets in all partitions that the client may know, or why there are none."""
    if not places:
        return {}, _NO_ERROR
    with context.child(_OFFSETS.span) as span:
        names = await listed(request.groups[at].group_id for at in places)
        try:
            every = await context.tenant.shares.describe(names, span.context)
        except BrokerUnavailableError as e:
            return {}, (e.code_or(ErrorCode.COORDINATOR_NOT_AVAILABLE), str(e))
    topics = (offset.topic for its in every for offset in its)
    hidden = await denied(topics, DESCRIBE_TOPIC, context)
    shown = await listed([each for each in its if each.topic not in hidden] for its in every)
    return dict(zip(places, shown, strict=True)), _NO_ERROR


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
