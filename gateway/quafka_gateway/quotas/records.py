"""Reading and changing the quotas of one org."""

from __future__ import annotations

from collections.abc import Mapping

from quafka_gateway.security.directory import Directory, QuotaKey
from quafka_gateway.security.writer import SecurityWriter
from quafka_gateway.tenant import Tenant
from quafka_mesh_ops.ops.security import ChangedResp, QuotaChange, QuotaRecord
from quafka_telemetry.tracing import TraceContext


def quotas_of(directory: Directory, tenant: Tenant) -> Mapping[QuotaKey, QuotaRecord]:
    """The quotas of an org, as this gateway knows them."""
    return directory.quotas(tenant.org_id)


async def alter(
    writer: SecurityWriter, tenant: Tenant, changes: list[QuotaChange], trace: TraceContext | None
) -> ChangedResp:
    """Change quotas of an org, durably. Raises BrokerUnavailableError."""
    return await writer.alter_quotas(tenant.org_id, changes, trace)
