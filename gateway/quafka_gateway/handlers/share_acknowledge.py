"""ShareAcknowledge (key 79), versions 1-2: acknowledges records of a share group (KIP-932).

The acknowledgements of a partition are accepted together, durably, or refused together. A request
belongs to its member's share session; the final one (epoch -1) ends the session, and gives back
what the member has not acknowledged. Version 2 can renew the locks of records (KIP-1222).
"""

from __future__ import annotations

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP, READ_TOPIC
from quafka_gateway.handlers.destinations import describe_places
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.share_records import (
    acknowledge,
    by_topic,
    end_session,
    member_of,
    named,
)
from quafka_loop.slices import in_slices
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.share_fetch import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from quafka_telemetry import semconv
from quafka_telemetry.tracing import fail_with


async def handle(
    request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    """Acknowledge records."""
    key = member_of(request.group_id, request.member_id, context)
    if isinstance(key, ErrorCode):
        return ShareAcknowledgeResponse(error_code=key)
    epoch = request.share_session_epoch
    wanted = await in_slices(named(request.topics))
    with context.child(semconv.GATEWAY_SHARE_ACKNOWLEDGE) as span:
        try:
            configs = await context.tenant.shares.configs(key[0], span.context)
        except BrokerUnavailableError as e:
            return ShareAcknowledgeResponse(error_code=e.code)
        session = context.tenant.share_sessions.begin(key, epoch, context.lane, fetches=False)
        describe_places(span, wanted.places, context)
        if isinstance(session, ErrorCode):
            return ShareAcknowledgeResponse(error_code=session)
        codes = await acknowledge(
            wanted.batches, request.is_renew_ack, configs, session, context, span.context
        )
        await end_session(session, epoch, context, span.context)
        fail_with(span, codes.values(), "ShareAcknowledge")
    places = await by_topic(codes)
    results = topic_results(
        places.items(),
        (codes[topic_id, number] for topic_id, its in places.items() for number in its),
        ShareAcknowledgePartitionData,
        ShareAcknowledgeTopicResponse,
    )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=session.lock_ms, responses=await in_slices(results)
    )


API = Api(
    key=79,
    versions=Versions(1, 2),
    request=ShareAcknowledgeRequest,
    handle=handle,
    access=(READ_GROUP, READ_TOPIC),
    order=Order(reads=SeenState.TOPICS | SeenState.CONFIGS, writes=SeenState.SHARES),
    response_length=ResponseLength.BY_REQUEST,
)
