"""DeleteShareGroupOffsets (key 92), version 0: a share group without members forgets topics."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_GROUP, DENIED, READ_TOPIC, denied
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.share_offsets import NO_ID, check_group, forget_topics, ids_of
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.shares import EVERY_PARTITION, DeleteShareOffsets, SharePlace
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Forget the topics at their brokers, durably."""
    if not context.may(DELETE_GROUP, request.group_id):
        return DeleteShareGroupOffsetsResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message=DENIED
        )
    hidden = await denied((each.topic_name for each in request.topics), READ_TOPIC, context)
    with context.child("gateway.kafka.delete_share_group_offsets") as span:
        code, message = await check_group(request.group_id, context, span.context)
        if code:
            return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message or None)
        places = await listed(
            SharePlace(topic.topic_name, EVERY_PARTITION)
            for topic in request.topics
            if topic.topic_name not in hidden
        )
        op = DeleteShareOffsets(request.group_id, places)
        ids = await ids_of({place.topic for place in places}, context, span.context)
        code = await forget_topics(request.group_id, ids.values(), context, span.context)
        if code:
            return DeleteShareGroupOffsetsResponse(error_code=code)
        codes = iter(await context.tenant.shares.change(op, span.context) if places else [])
    return DeleteShareGroupOffsetsResponse(
        responses=await listed(
            _answer(
                name,
                ids.get(name, NO_ID),
                ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in hidden else next(codes),
            )
            for name in (topic.topic_name for topic in request.topics)
        )
    )


API = Api(
    key=92,
    versions=Versions(0, 0),
    request=DeleteShareGroupOffsetsRequest,
    handle=handle,
    access=(DELETE_GROUP, READ_TOPIC),
    order=Order(reads=SeenState.GROUPS | SeenState.TOPICS, writes=SeenState.SHARES),
    response_length=ResponseLength.BY_REQUEST,
    audited=True,
)


def _answer(name: str, topic_id: bytes, code: int) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        error_code=code,
        error_message=ErrorCode(code).name if code else None,
    )
