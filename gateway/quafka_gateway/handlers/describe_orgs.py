"""DescribeOrgs (key 20553, Quafka's own), version 0: the orgs of the cluster, for its operators.

An org that only the settings name has no record until it is limited or suspended: it is active.
"""

from __future__ import annotations

from collections.abc import Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.security.org_of import org_by_text
from quafka_gateway.tenant import Traffic
from quafka_gateway.tenants import ACTIVE
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.security import OrgRecord
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.quafka import (
    DescribeOrgsRequest,
    DescribeOrgsResponse,
    Org,
)

_NO_TRAFFIC = Traffic()
NOT_AN_OPERATOR = "orgs are for super users of the gateway's own org"


async def handle(request: DescribeOrgsRequest, context: RequestContext) -> DescribeOrgsResponse:
    """Describe the named orgs, or all that this gateway may serve."""
    if not context.is_operator:
        return DescribeOrgsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=NOT_AN_OPERATOR
        )
    with context.child("gateway.kafka.describe_orgs"):
        return DescribeOrgsResponse(orgs=await listed(_described(request.orgs, context)))


def _described(names: list[str] | None, context: RequestContext) -> Iterator[Org]:
    services = context.services
    known = services.directory.orgs()
    if names is None:
        ids = sorted({*known, *(tenant.org_id for tenant in services.tenants)})
    else:
        found = [org_by_text(services.directory, name) for name in dict.fromkeys(names)]
        ids = [
            each
            for each in found
            if each is not None and (each in known or services.tenants.find(each))
        ]
    for org_id in ids:
        record = known.get(org_id) or OrgRecord(org_id, str(org_id), ACTIVE, [])
        yield described(record, context)


def described(record: OrgRecord, context: RequestContext) -> Org:
    """An org and what its clients do at this gateway."""
    tenant = context.services.tenants.find(record.org_id)
    traffic = _NO_TRAFFIC if tenant is None else tenant.traffic
    return Org(
        org_id=record.org_id,
        name=record.name,
        state=record.state,
        limits=record.limits,
        connections=0 if tenant is None else len(tenant.clients),
        requests=traffic.requests,
        received_bytes=traffic.received,
        sent_bytes=traffic.sent,
    )


API = Api(
    key=20553,
    versions=Versions(0, 0),
    request=DescribeOrgsRequest,
    handle=handle,
    access=(),
    for_operators=True,
    order=Order(reads=SeenState.ORGS),
    response_length=ResponseLength.LONG,
    quafka_only=True,
)
