"""CreateAcls (key 30), versions 0-3: adds rules to the client's org, durably.

Each rule succeeds or fails on its own; one that exists already succeeds. Without an authorizer the
answer is SECURITY_DISABLED: a rule that nothing enforces would mislead.
"""

from __future__ import annotations

from collections.abc import Iterable

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    ALTER_CLUSTER,
    AUTHORIZER_DISABLED,
    DENIED,
    NO_AUTHORIZER,
    may_on_cluster,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.security import acl_records
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.security import AclRecord
from quafka_proto.acl_kinds import CLUSTER_NAME, ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

_PER_OP = 500
_Outcome = tuple[int, str]
_GOOD: _Outcome = (ErrorCode.NONE, "")


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Add each rule."""
    if not may_on_cluster(ALTER_CLUSTER, context):
        return await _all(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED)
    if context.services.authorizer is None:
        return await _all(request, AUTHORIZER_DISABLED, NO_AUTHORIZER)
    outcomes = await listed(map(_checked, request.creations))
    good = await listed(at for at, outcome in enumerate(outcomes) if outcome == _GOOD)
    with context.child("gateway.kafka.create_acls") as span:
        for first in range(0, len(good), _PER_OP):
            some = good[first : first + _PER_OP]
            rules = [_rule(request.creations[at], context) for at in some]
            try:
                writer = context.services.security_writer
                answer = await acl_records.create(writer, context.tenant, rules, span.context)
            except BrokerUnavailableError as e:
                for at in good[first:]:
                    outcomes[at] = (ErrorCode.REQUEST_TIMED_OUT, str(e))
                break
            messages = answer.messages or [""] * len(some)
            for at, code, message in zip(some, answer.error_codes, messages, strict=True):
                outcomes[at] = (code, message)
    return CreateAclsResponse(results=await _results(outcomes))


API = Api(
    key=30,
    versions=Versions(0, 3),
    request=CreateAclsRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(writes=SeenState.ACLS),
    audited=True,
)


async def _all(request: CreateAclsRequest, code: int, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(results=await _results((code, message) for _ in request.creations))


async def _results(outcomes: Iterable[_Outcome]) -> list[AclCreationResult]:
    return await listed(
        AclCreationResult(error_code=code, error_message=message or None)
        for code, message in outcomes
    )


def _checked(each: AclCreation) -> _Outcome:
    """What is wrong with a rule in every org; the broker checks the rest."""
    if each.resource_type == ResourceKind.CLUSTER and each.resource_name != CLUSTER_NAME:
        message = f"the only resource of the kind CLUSTER is {CLUSTER_NAME}"
        return ErrorCode.INVALID_REQUEST, message
    return _GOOD


def _rule(each: AclCreation, context: RequestContext) -> AclRecord:
    return acl_records.rule_of(
        context.tenant,
        resource_type=each.resource_type,
        resource_name=each.resource_name,
        pattern_type=each.resource_pattern_type,
        principal=each.principal,
        host=each.host,
        operation=each.operation,
        permission_type=each.permission_type,
    )
