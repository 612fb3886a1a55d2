"""DescribeUserScramCredentials (key 50), version 0: no user has credentials yet.

A user that the request names is answered RESOURCE_NOT_FOUND, as in Kafka.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_CLUSTER, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.scram import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Answer an error for each user that the request names."""
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=DENIED)
    results = [
        DescribeUserScramCredentialsResult(
            user=user.name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"user {user.name!r} has no credentials",
        )
        for user in request.users or []
    ]
    return DescribeUserScramCredentialsResponse(results=results)


API = Api(
    key=50,
    versions=Versions(0, 0),
    request=DescribeUserScramCredentialsRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=State.USERS),
)
