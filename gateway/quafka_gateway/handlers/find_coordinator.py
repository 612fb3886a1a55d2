"""FindCoordinator (key 10), versions 0-6: this gateway coordinates all groups and transactions.

The broker coordinates; the gateway passes their requests to it.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_GROUP, DESCRIBE_TRANSACTION
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order
from quafka_loop.slices import listed
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)

_GROUP, _TRANSACTION = 0, 1


async def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name this gateway for every group and transactional id."""
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    found = await listed(_coordinator(key, request.key_type, context) for key in keys)
    if context.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


API = Api(
    key=10,
    versions=Versions(0, 6),
    request=FindCoordinatorRequest,
    handle=handle,
    access=(DESCRIBE_GROUP, DESCRIBE_TRANSACTION),
    order=Order(),
)


def _coordinator(key: str, key_type: int, context: RequestContext) -> FoundCoordinator:
    error, message = ErrorCode.NONE, ""
    if key_type not in (_GROUP, _TRANSACTION):
        error, message = ErrorCode.INVALID_REQUEST, f"key type {key_type} is not known here"
    elif key_type == _GROUP and not context.may(DESCRIBE_GROUP, key):
        error, message = ErrorCode.GROUP_AUTHORIZATION_FAILED, DENIED
    elif key_type == _TRANSACTION and not context.may(DESCRIBE_TRANSACTION, key):
        error, message = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, DENIED
    elif not key and key_type == _GROUP:
        error, message = ErrorCode.INVALID_GROUP_ID, "a group's name must not be empty"
    elif not key:
        error, message = ErrorCode.INVALID_REQUEST, "a transactional id must not be empty"
    if error:
        return FoundCoordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
        )
    host, port = context.session.advertised
    return FoundCoordinator(key=key, node_id=context.node_id, host=host, port=port)
