"""OffsetDelete (key 47), version 0: deletes offsets of topics that no member subscribes to."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_GROUP, READ_TOPIC, denied
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, in_slices, listed
from quafka_mesh_ops.ops.group_offsets import CommittedQuestion, DeleteOffsets
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_TOPICS_PER_SLICE = 500


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete the offsets, durably."""
    if not context.may(DELETE_GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    hidden = await denied((topic.name for topic in request.topics), READ_TOPIC, context)
    questions: list[CommittedQuestion] = []
    slices = Slices(_TOPICS_PER_SLICE)
    for topic in request.topics:
        await slices.done()
        if topic.name not in hidden:
            partitions = await listed(each.partition_index for each in topic.partitions)
            questions.append(CommittedQuestion(topic.name, partitions))
    op = DeleteOffsets(request.group_id, questions)
    with context.child("gateway.kafka.offset_delete") as span:
        answer = await context.tenant.groups.of(op.group).delete_offsets(op, span.context)
    if answer.error_code:
        return OffsetDeleteResponse(error_code=answer.error_code)
    codes = iter(answer.partitions)
    results = topic_results(
        ((topic.name, topic.partitions) for topic in request.topics),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.name in hidden else next(codes)
            for topic in request.topics
            for _ in topic.partitions
        ),
        lambda each, code: OffsetDeleteResponsePartition(each.partition_index, code),
        OffsetDeleteResponseTopic,
    )
    return OffsetDeleteResponse(topics=await in_slices(results))


API = Api(
    key=47,
    versions=Versions(0, 0),
    request=OffsetDeleteRequest,
    handle=handle,
    access=(DELETE_GROUP, READ_TOPIC),
    order=Order(reads=SeenState.TOPICS | SeenState.GROUPS, writes=SeenState.OFFSETS),
    audited=True,
)
