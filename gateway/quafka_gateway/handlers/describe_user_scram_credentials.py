"""DescribeUserScramCredentials (key 50), version 0: the passwords' mechanisms and iterations.

Without names, of all users of the client's org. A name that occurs twice is answered
DUPLICATE_RESOURCE, one without a user RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_CLUSTER, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.security.users import NUMBERS, user_of, users_of
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.security import UserRecord
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.scram import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """List users, without their keys."""
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = await listed(
            DescribeUserScramCredentialsResult(each.name, code, DENIED)
            for each in request.users or ()
        )
        return DescribeUserScramCredentialsResponse(
            error_code=code, error_message=DENIED, results=refused
        )
    if request.users:
        results = _named(request, context)
    else:
        results = map(_described, users_of(context.services.directory, context.tenant))
    return DescribeUserScramCredentialsResponse(results=await listed(results))


API = Api(
    key=50,
    versions=Versions(0, 0),
    request=DescribeUserScramCredentialsRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=SeenState.USERS),
    response_length=ResponseLength.LONG,
)


def _named(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> Iterator[DescribeUserScramCredentialsResult]:
    for name, count in Counter(each.name for each in request.users or ()).items():
        user = user_of(context.services.directory, context.tenant, name)
        if count > 1:
            yield DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.DUPLICATE_RESOURCE,
                error_message=f"the request names user {name!r} more than once",
            )
        elif user is None:
            yield DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message=f"user {name!r} has no credentials",
            )
        else:
            yield _described(user)


def _described(user: UserRecord) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=NUMBERS[each.mechanism], iterations=each.iterations)
        for each in user.credentials
    ]
    infos.sort(key=lambda info: info.mechanism)
    return DescribeUserScramCredentialsResult(user=user.name, credential_infos=infos)
