"""DescribeAcls (key 29), versions 0-3: the rules of the client's org that match a filter.

Without an authorizer the answer is SECURITY_DISABLED, as in Kafka. Without the API, tools would
take the UNSUPPORTED_VERSION error for an old cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    AUTHORIZER_DISABLED,
    DENIED,
    DESCRIBE_CLUSTER,
    NO_AUTHORIZER,
    may_on_cluster,
)
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.security import acl_records
from quafka_loop.slices import listed
from quafka_mesh_ops.acl_filters import filter_error
from quafka_mesh_ops.ops.security import AclFilter, AclRecord
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """List the matching rules, by resource."""
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED)
    if context.services.authorizer is None:
        return _refused(AUTHORIZER_DISABLED, NO_AUTHORIZER)
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if filter_error(wanted):
        return _refused(filter_error(wanted), "a number in the filter is not known")
    found = await acl_records.find(context.services.directory, context.tenant, wanted)
    found.sort(key=_pattern)
    return DescribeAclsResponse(resources=await listed(_resources(found)))


API = Api(
    key=29,
    versions=Versions(0, 3),
    request=DescribeAclsRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=SeenState.ACLS),
    response_length=ResponseLength.LONG,
)


def _refused(code: int, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)


def _pattern(rule: AclRecord) -> tuple[int, int, str]:
    return rule.resource_type, rule.pattern_type, rule.resource_name


def _resources(rules: list[AclRecord]) -> Iterator[DescribeAclsResource]:
    """The rules of each pattern together."""
    for (kind, pattern, name), its in groupby(rules, _pattern):
        yield DescribeAclsResource(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=[
                AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission_type,
                )
                for rule in its
            ],
        )
