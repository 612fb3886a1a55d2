"""OffsetDelete (key 47), version 0: deletes offsets of topics that no member subscribes to."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_GROUP, READ_TOPIC, denied
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_mesh_ops.ops.group_offsets import CommittedQuestion, DeleteOffsets
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete the offsets, durably."""
    if not context.may(DELETE_GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    hidden = await denied((topic.name for topic in request.topics), READ_TOPIC, context)
    op = DeleteOffsets(
        request.group_id,
        [
            CommittedQuestion(topic.name, [each.partition_index for each in topic.partitions])
            for topic in request.topics
            if topic.name not in hidden
        ],
    )
    with context.child("gateway.kafka.offset_delete") as span:
        answer = await context.tenant.groups.delete_offsets(op, span.context)
    if answer.error_code:
        return OffsetDeleteResponse(error_code=answer.error_code)
    errors = iter(answer.partitions)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=refused if topic.name in hidden else next(errors),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    key=47,
    versions=Versions(0, 0),
    request=OffsetDeleteRequest,
    handle=handle,
    access=(DELETE_GROUP, READ_TOPIC),
    order=Order(reads=State.TOPICS | State.GROUPS, writes=State.OFFSETS),
    audited=True,
)
