"""DescribeGroupLag (key 20550, Quafka's own), version 0: the lag of groups and partitions."""

from __future__ import annotations

from collections.abc import Collection, Generator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_GROUP, DESCRIBE_TOPIC, denied
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, in_slices, listed
from quafka_mesh_ops.ops.lag import LagOfGroup
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema import quafka
from quafka_proto.schema.quafka import (
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
    GroupLagMember,
    GroupLagPartition,
    GroupLagTopic,
)

_GROUPS_PER_SLICE = 100


async def handle(
    request: DescribeGroupLagRequest, context: RequestContext
) -> DescribeGroupLagResponse:
    """Let the broker compute the lag of each group."""
    hidden = await denied(request.groups, DESCRIBE_GROUP, context)
    names = await listed(name for name in request.groups if name not in hidden)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = await listed(
        quafka.DescribedGroupLag(error_code=code, group_id=name) for name in hidden
    )
    if hidden and not names:
        return DescribeGroupLagResponse(groups=refused)
    with context.child("gateway.kafka.describe_group_lag") as span:
        answer = await context.tenant.groups.lag(names, span.context)
    topics = (each.topic for group in answer.groups for each in group.partitions or [])
    hidden_topics = await denied(topics, DESCRIBE_TOPIC, context)
    found: list[quafka.DescribedGroupLag] = []
    slices = Slices(_GROUPS_PER_SLICE)
    for group in answer.groups:
        found.append(await _group(group, hidden_topics))
        await slices.done()
    return DescribeGroupLagResponse(server_time_ms=answer.now_ms, groups=found + refused)


API = Api(
    key=20550,
    versions=Versions(0, 0),
    request=DescribeGroupLagRequest,
    handle=handle,
    access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.GROUPS | SeenState.OFFSETS | SeenState.RECORDS | SeenState.TOPICS),
    response_length=ResponseLength.LONG,
    quafka_only=True,
)


async def _group(group: LagOfGroup, hidden: Collection[str]) -> quafka.DescribedGroupLag:
    return quafka.DescribedGroupLag(
        error_code=group.error_code,
        group_id=group.group,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=await listed(
            GroupLagMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id or None,
                client_id=member.client_id,
                client_host=member.client_host,
            )
            for member in group.members or []
        ),
        topics=await in_slices(_topics(group, hidden)),
    )


def _topics(
    group: LagOfGroup, hidden: Collection[str]
) -> Generator[None, None, list[GroupLagTopic]]:
    topics: list[GroupLagTopic] = []
    for each in group.partitions or []:
        if each.topic in hidden:
            continue
        if not topics or topics[-1].name != each.topic:
            topics.append(GroupLagTopic(name=each.topic))
        topics[-1].partitions.append(
            GroupLagPartition(
                partition_index=each.partition,
                log_start_offset=each.log_start,
                high_watermark=each.high_watermark,
                committed_offset=each.committed,
                lag=each.records,
                behind_ms=each.behind_ms,
                catch_up_ms=each.catch_up_ms,
                member_id=each.member_id or None,
            )
        )
        yield
    return topics
