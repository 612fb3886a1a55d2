"""AlterOrg (key 20554, Quafka's own), version 0: creates, limits, suspends and deletes orgs.

Operators of the cluster may do so. The change is durable, and in effect at this gateway, when it is
answered; other gateways learn of it within one round trip. A suspended org's clients are
disconnected, and a deleted org loses everything that it has.
"""

from __future__ import annotations

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.describe_orgs import NOT_AN_OPERATOR, described
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.security.org_of import org_by_text
from quafka_gateway.tenants import ACTIVE
from quafka_mesh_ops.grants import LAST_ORG
from quafka_mesh_ops.ops.security import AlterOrg, OrgRecord
from quafka_mesh_ops.org_limits import limit_problem
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.quafka import AlterOrgRequest, AlterOrgResponse, OrgLimit

_MOST_LIMITS = 100
"""More than all limits that exist."""


async def handle(request: AlterOrgRequest, context: RequestContext) -> AlterOrgResponse:
    """Have all brokers of the cluster change the org."""
    if not context.is_operator:
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_AN_OPERATOR)
    op = _op(request, context)
    if isinstance(op, AlterOrgResponse):
        return op
    problem = limit_problem(op.limits or ())
    if problem:
        return _failed(ErrorCode.INVALID_REQUEST, problem)
    with context.child("gateway.kafka.alter_org") as span:
        try:
            answer = await context.services.security_writer.alter_org(
                context.tenant.org_id, op, span.context
            )
        except BrokerUnavailableError as e:
            return _failed(e.code_or(ErrorCode.REQUEST_TIMED_OUT), str(e))
    if answer.error_code or answer.org is None:
        return _failed(answer.error_code, answer.error_message)
    return AlterOrgResponse(org=described(answer.org, context))


API = Api(
    key=20554,
    versions=Versions(0, 0),
    request=AlterOrgRequest,
    handle=handle,
    access=(),
    for_operators=True,
    order=Order(writes=SeenState.ORGS),
    audited=True,
    quafka_only=True,
)


def _op(request: AlterOrgRequest, context: RequestContext) -> AlterOrg | AlterOrgResponse:
    """The change as an op, or why there can be none."""
    if len(request.limits) + len(request.removed_limits) > _MOST_LIMITS:
        return _failed(ErrorCode.INVALID_REQUEST, f"more than {_MOST_LIMITS} limits")
    if not 0 <= request.org_id <= LAST_ORG:
        return _failed(ErrorCode.INVALID_REQUEST, f"the id of an org is 1 to {LAST_ORG}")
    if request.create:
        limits = _limits([], request)
        return AlterOrg(request.org_id, request.org, request.state or ACTIVE, limits, create=True)
    services = context.services
    org_id = org_by_text(services.directory, request.org)
    record = None if org_id is None else services.directory.org(org_id)
    if org_id is None or (record is None and not services.tenants.is_named(org_id)):
        return _failed(ErrorCode.RESOURCE_NOT_FOUND, f"no org {request.org[:64]!r}")
    if org_id == services.tenants.own_id and request.state not in ("", ACTIVE):
        return _failed(
            ErrorCode.INVALID_REQUEST, "this gateway's own org cannot be suspended or deleted here"
        )
    if record is None:  # the settings name it; from now on it has a record
        name = request.new_name or f"org-{org_id}"
        limits = _limits([], request)
        return AlterOrg(org_id, name, request.state or ACTIVE, limits, create=True)
    return AlterOrg(org_id, request.new_name, request.state, _changed_limits(record, request))


def _changed_limits(record: OrgRecord, request: AlterOrgRequest) -> list[OrgLimit] | None:
    if not request.limits and not request.removed_limits:
        return None
    return _limits(record.limits, request)


def _limits(present: list[OrgLimit], request: AlterOrgRequest) -> list[OrgLimit]:
    named = {limit.name for limit in request.limits} | set(request.removed_limits)
    kept = [limit for limit in present if limit.name not in named]
    return kept + request.limits


def _failed(code: int, message: str) -> AlterOrgResponse:
    return AlterOrgResponse(error_code=code, error_message=message)
