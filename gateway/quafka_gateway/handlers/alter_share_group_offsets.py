"""AlterShareGroupOffsets (key 91), version 0: moves the offsets of a share group without members.

The group forgets all deliveries in the partitions. As in Kafka, a group that does not exist is
created, so that its first member begins at these offsets.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, READ_GROUP, READ_TOPIC, denied
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.share_offsets import NO_ID, check_group, create_group, described
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.shares import AlterShareOffsets, NewShareOffset
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


async def handle(
    request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Change the offsets at the brokers of the partitions, durably."""
    if not context.may(READ_GROUP, request.group_id):
        return AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message=DENIED
        )
    if not request.topics:
        return AlterShareGroupOffsetsResponse()
    hidden = await denied((each.topic_name for each in request.topics), READ_TOPIC, context)
    with context.child("gateway.kafka.alter_share_group_offsets") as span:
        places = await listed(
            NewShareOffset(topic.topic_name, part.partition_index, part.start_offset)
            for topic in request.topics
            if topic.topic_name not in hidden
            for part in topic.partitions
        )
        topics = await described({place.topic for place in places}, context, span.context)
        if places:
            code, message = await create_group(request.group_id, topics, context, span.context)
        else:
            code, message = await check_group(request.group_id, context, span.context)
        if code:
            return AlterShareGroupOffsetsResponse(error_code=code, error_message=message or None)
        op = AlterShareOffsets(request.group_id, places)
        codes = await context.tenant.shares.change(op, span.context) if places else []
        ids = dict(await listed((each.topic, each.topic_id) for each in topics))
    rest = iter(codes)
    responses = topic_results(
        ((topic.topic_name, topic.partitions) for topic in request.topics),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.topic_name in hidden else next(rest)
            for topic in request.topics
            for _ in topic.partitions
        ),
        lambda part, code: AlterShareGroupOffsetsResponsePartition(
            part.partition_index, code, ErrorCode(code).name if code else None
        ),
        lambda name, parts: AlterShareGroupOffsetsResponseTopic(name, ids.get(name, NO_ID), parts),
    )
    return AlterShareGroupOffsetsResponse(responses=await in_slices(responses))


API = Api(
    key=91,
    versions=Versions(0, 0),
    request=AlterShareGroupOffsetsRequest,
    handle=handle,
    access=(READ_GROUP, READ_TOPIC),
    order=Order(
        reads=SeenState.GROUPS | SeenState.TOPICS, writes=SeenState.GROUPS | SeenState.SHARES
    ),
    response_length=ResponseLength.BY_REQUEST,
    audited=True,
)
