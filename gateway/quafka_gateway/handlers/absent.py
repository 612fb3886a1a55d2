"""APIs about what this cluster does not have, answered as Kafka does where it is not there.

Tools ask these whenever they show a cluster, and take UNSUPPORTED_VERSION for an old one.

| API | key, versions | answer |
| --- | --- | --- |
| SaslHandshake, SaslAuthenticate | 17, 0-1; 36, 0-2 | ILLEGAL_SASL_STATE: nobody is asked to |
| DescribeAcls, CreateAcls, DeleteAcls | 29-31, 0-3 | SECURITY_DISABLED: there is no authorizer |
| DescribeClientQuotas | 48, 0-1 | none |
| DescribeUserScramCredentials | 50, 0 | none; RESOURCE_NOT_FOUND for a user by name |
| DescribeTransactions | 65, 0 | TRANSACTIONAL_ID_NOT_FOUND |
| ListTransactions | 66, 0-2 | none |
| UpdateFeatures | 57, 0-2 | INVALID_UPDATE_VERSION: there are no features |
| ConsumerGroupHeartbeat | 68, 0-1 | UNSUPPORTED_VERSION, as in Kafka where the protocol is off |
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from quafka_proto.schema.cluster import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from quafka_proto.schema.quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from quafka_proto.schema.scram import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_DISABLED = ErrorCode.SECURITY_DISABLED
_NO_AUTHORIZER = "no authorizer is configured"
_NO_SASL = "clients do not log in here: this listener is PLAINTEXT"
_TRANSACTION_STATES = frozenset(
    (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
        "Dead", "PrepareEpochFence",
    )
)  # fmt: skip


async def sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """No mechanism is offered. A client told so gives up; a lost connection it would try again."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


async def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Nobody's credentials are looked at."""
    code = ErrorCode.ILLEGAL_SASL_STATE
    return SaslAuthenticateResponse(error_code=code, error_message=_NO_SASL, auth_bytes=b"")


async def describe_acls(
    request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    """Nobody is refused anything."""
    return DescribeAclsResponse(error_code=_DISABLED, error_message=_NO_AUTHORIZER)


async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """None is made: it would not be heeded."""
    refusal = AclCreationResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)
    return CreateAclsResponse(results=[refusal] * len(request.creations))


async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """There is none."""
    refusal = DeleteAclsFilterResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """There is none."""
    return DescribeClientQuotasResponse(entries=[])


async def describe_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """No user has any."""
    results = [
        DescribeUserScramCredentialsResult(
            user=user.name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"user {user.name!r} has no credentials",
        )
        for user in request.users or []
    ]
    return DescribeUserScramCredentialsResponse(results=results)


async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """There is none."""
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    states = [
        TransactionState(error_code=code, transactional_id=each)
        for each in request.transactional_ids
    ]
    return DescribeTransactionsResponse(transaction_states=states)


async def list_transactions(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """There is none. States that Kafka does not have are named, as it does."""
    unknown = [state for state in request.state_filters if state not in _TRANSACTION_STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


async def update_features(
    request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    """There is none to update. From version 2 on the request fails as a whole."""
    code = ErrorCode.INVALID_UPDATE_VERSION
    results = [
        UpdatableFeatureResult(
            feature=each.feature, error_code=code, error_message=_no_feature(each.feature)
        )
        for each in request.feature_updates
    ]
    if context.version < 2 or not results:
        return UpdateFeaturesResponse(results=results)
    return UpdateFeaturesResponse(error_code=code, error_message=results[0].error_message)


def _no_feature(name: str) -> str:
    return f"the feature {name[:100]!r} is not supported"


async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Refused with an error that clients report: without the API, librdkafka waits in silence."""
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="the consumer group protocol is not served here: use group.protocol=classic",
    )
