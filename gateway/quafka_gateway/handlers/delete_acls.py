"""DeleteAcls (key 31), versions 0-3: removes the rules of the client's org that match, durably.

Version 0 knows no pattern types: its filters mean literal names, as in Kafka.
"""

from __future__ import annotations

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
from quafka_mesh_ops.ops.security import AclFilter, DeletedAcls
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

_PER_OP = 100
_NOTHING = DeleteAclsFilterResult()
"""The result of each filter that matches nothing. A request of 7 MB may have 249,000 of those."""


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Remove what each filter matches."""
    if not may_on_cluster(ALTER_CLUSTER, context):
        return await _all(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED)
    if context.services.authorizer is None:
        return await _all(request, AUTHORIZER_DISABLED, NO_AUTHORIZER)
    filters = request.filters
    results: list[DeleteAclsFilterResult] = []
    with context.child("gateway.kafka.delete_acls") as span:
        for first in range(0, len(filters), _PER_OP):
            some = [_filter(each) for each in filters[first : first + _PER_OP]]
            try:
                writer = context.services.security_writer
                answer = await acl_records.delete(writer, context.tenant, some, span.context)
            except BrokerUnavailableError as e:
                left = len(filters) - first
                results += [_failed(ErrorCode.REQUEST_TIMED_OUT, str(e))] * left
                break
            for each in answer.results:
                results.append(await _result(each) if each.error_code or each.acls else _NOTHING)
    return DeleteAclsResponse(filter_results=results)


API = Api(
    key=31,
    versions=Versions(0, 3),
    request=DeleteAclsRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(writes=SeenState.ACLS),
    audited=True,
)


def _failed(code: int, message: str) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=message)


async def _all(request: DeleteAclsRequest, code: int, message: str) -> DeleteAclsResponse:
    refusal = _failed(code, message)
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


def _filter(each: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        each.resource_type_filter,
        each.resource_name_filter,
        each.pattern_type_filter,
        each.principal_filter,
        each.host_filter,
        each.operation,
        each.permission_type,
    )


async def _result(deleted: DeletedAcls) -> DeleteAclsFilterResult:
    if deleted.error_code:
        return _failed(deleted.error_code, "the filter is not valid, or cannot be served now")
    return DeleteAclsFilterResult(
        matching_acls=await listed(
            DeleteAclsMatchingAcl(
                resource_type=rule.resource_type,
                resource_name=rule.resource_name,
                pattern_type=rule.pattern_type,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission_type,
            )
            for rule in deleted.acls
        )
    )
