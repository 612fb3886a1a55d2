"""Reading and changing the rules of one org."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.writer import SecurityWriter
from quafka_gateway.tenant import Tenant
from quafka_loop.slices import Slices
from quafka_mesh_ops.acl_filters import matches
from quafka_mesh_ops.ops.security import AclFilter, AclRecord, ChangedResp, DeleteAclsResp
from quafka_telemetry.tracing import TraceContext

_PER_SLICE = 300


async def find(directory: Directory, tenant: Tenant, wanted: AclFilter) -> list[AclRecord]:
    """The rules of an org that a filter matches, as this gateway knows them."""
    found: list[AclRecord] = []
    slices = Slices(_PER_SLICE)
    for rule in list(directory.acls(tenant.org_id)):
        if matches(wanted, rule):
            found.append(rule)
        await slices.done()
    return found


def rule_of(
    tenant: Tenant,
    *,
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission_type: int,
) -> AclRecord:
    """A rule of an org."""
    return AclRecord(
        tenant.org_id, resource_type, resource_name, pattern_type, principal, host, operation,
        permission_type,
    )  # fmt: skip


async def create(
    writer: SecurityWriter, tenant: Tenant, rules: Sequence[AclRecord], trace: TraceContext | None
) -> ChangedResp:
    """Add rules to an org, durably. Raises BrokerUnavailableError."""
    return await writer.create_acls(tenant.org_id, list(rules), trace)


async def delete(
    writer: SecurityWriter, tenant: Tenant, filters: Sequence[AclFilter], trace: TraceContext | None
) -> DeleteAclsResp:
    """Remove the org's rules that match any of the filters, durably.

    Raises:
        BrokerUnavailableError: there was no answer.
    """
    return await writer.delete_acls(tenant.org_id, list(filters), trace)
