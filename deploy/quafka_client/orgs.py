"""Orgs of a Quafka cluster: DescribeOrgs, AlterOrg. For its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quafka_client.cluster import ClientCluster
from quafka_client.errors import check
from quafka_proto.schema.quafka import (
    AlterOrgRequest,
    AlterOrgResponse,
    DescribeOrgsRequest,
    DescribeOrgsResponse,
    Org,
    OrgLimit,
)


@dataclass(frozen=True, slots=True)
class OrgDetails:
    """An org, and its clients' usage at the gateway that answered."""

    id: int
    name: str
    state: str
    limits: dict[str, float]
    connections: int
    requests: int
    received_bytes: int
    sent_bytes: int


async def orgs(cluster: ClientCluster, names: Sequence[str] | None = None) -> list[OrgDetails]:
    """All orgs, or those with these names or ids that exist. Raises ClientError."""
    request = DescribeOrgsRequest(orgs=None if names is None else list(names))
    answer = await cluster.call(request, DescribeOrgsResponse)
    check(answer.error_code, "orgs", answer.error_message)
    return [_description(each) for each in answer.orgs]


async def alter(
    cluster: ClientCluster,
    org: str,
    *,
    create: bool = False,
    org_id: int = 0,
    new_name: str = "",
    state: str = "",
    limits: Mapping[str, float] | None = None,
    removed_limits: Sequence[str] = (),
) -> OrgDetails:
    """Create or change an org; returns its new state. Raises ClientError.

    `org_id` 0 takes a free id. An empty name or state is left unchanged.
    """
    request = AlterOrgRequest(
        org=org,
        create=create,
        org_id=org_id,
        new_name=new_name,
        state=state,
        limits=[OrgLimit(name=name, value=value) for name, value in (limits or {}).items()],
        removed_limits=list(removed_limits),
    )
    answer = await cluster.call(request, AlterOrgResponse)
    check(answer.error_code, f"org {org!r}", answer.error_message)
    assert answer.org is not None
    return _description(answer.org)


def _description(org: Org) -> OrgDetails:
    return OrgDetails(
        org.org_id,
        org.name,
        org.state,
        {limit.name: limit.value for limit in sorted(org.limits, key=lambda limit: limit.name)},
        org.connections,
        org.requests,
        org.received_bytes,
        org.sent_bytes,
    )
