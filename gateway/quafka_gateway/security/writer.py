"""Changes of orgs, users, ACLs and quotas: sent to the broker that keeps them.

A method returns once the change is durable and, unless the broker has become unavailable meanwhile,
once this gateway's copy includes it: a client reads its own writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.security.directory import Directory
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.security import (
    AclFilter,
    AclRecord,
    AlterOrg,
    AlterOrgResp,
    AlterQuotas,
    AlterUsers,
    ChangedResp,
    CreateAcls,
    DeleteAcls,
    DeleteAclsResp,
    QuotaChange,
    UserChange,
)
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_LEARNED_SECONDS = 2.0
_OP_SECONDS = 10.0


def _no_broker(broker: int, org_id: int) -> BrokerLink:
    raise BrokerUnavailableError("no broker keeps users, ACLs and quotas")


class SecurityWriter:
    """Sends changes. Every method raises BrokerUnavailableError if there was no answer."""

    def __init__(
        self,
        directory: Directory,
        link_of: Callable[[int, int], BrokerLink] = _no_broker,
        brokers: int = 1,
    ) -> None:
        """`link_of(broker, org)` returns a link; broker 0 is the security broker."""
        self._directory = directory
        self._link_of = link_of
        self._brokers = brokers

    async def alter_users(
        self, org_id: int, changes: list[UserChange], trace: TraceContext | None = None
    ) -> ChangedResp:
        """Set or remove credentials of an org's users."""
        answer = await self._send(org_id, AlterUsers(changes), trace)
        await self._learn(answer.incarnation, answer.version)
        return answer

    async def create_acls(
        self, org_id: int, acls: list[AclRecord], trace: TraceContext | None = None
    ) -> ChangedResp:
        """Add rules to an org; those that it has already stay."""
        answer = await self._send(org_id, CreateAcls(acls), trace)
        await self._learn(answer.incarnation, answer.version)
        return answer

    async def delete_acls(
        self, org_id: int, filters: list[AclFilter], trace: TraceContext | None = None
    ) -> DeleteAclsResp:
        """Remove the org's rules that match any of the filters."""
        answer = await self._send(org_id, DeleteAcls(filters), trace)
        await self._learn(answer.incarnation, answer.version)
        return answer

    async def alter_quotas(
        self, org_id: int, changes: list[QuotaChange], trace: TraceContext | None = None
    ) -> ChangedResp:
        """Set or remove quotas of an org's entities."""
        answer = await self._send(org_id, AlterQuotas(changes), trace)
        await self._learn(answer.incarnation, answer.version)
        return answer

    async def alter_org(
        self, own_org: int, op: AlterOrg, trace: TraceContext | None = None
    ) -> AlterOrgResp:
        """Create, limit, suspend or delete an org, at all brokers.

        `own_org`: the org of the operator. The security broker decides. If another broker has not
        taken the change, its error is the answer; repeating the change without `create` is safe.
        """
        answer = await self._send(own_org, op, trace)
        org = answer.org
        if answer.error_code or org is None:
            return answer
        copy = AlterOrg(org.org_id, org.name, org.state, org.limits, copy=True)
        others = [self._copy(broker, own_org, copy, trace) for broker in range(1, self._brokers)]
        answers: Sequence[AlterOrgResp] = await asyncio.gather(*others)
        await self._learn(answer.incarnation, answer.version)
        return next((each for each in answers if each.error_code), answer)

    async def _copy(
        self, broker: int, own_org: int, op: AlterOrg, trace: TraceContext | None
    ) -> AlterOrgResp:
        try:
            answer = await self._link_of(broker, own_org).call(op, trace, _OP_SECONDS)
        except BrokerUnavailableError as e:
            message = f"another broker of the cluster has not taken the change: {e}"
            return AlterOrgResp(e.code, None, -1, b"", message)
        if not answer.error_code:
            return answer
        message = f"another broker of the cluster has not taken the change: {answer.error_message}"
        if answer.error_code == ErrorCode.DUPLICATE_RESOURCE:
            message += (
                " there, from before it was in this cluster; give one of the two another name, "
                "that one through a gateway with this broker alone"
            )
        return replace(answer, error_message=message)

    async def _send(self, org_id: int, op: Op[R], trace: TraceContext | None) -> R:
        return await self._link_of(0, org_id).call(op, trace, _OP_SECONDS)

    async def _learn(self, incarnation: bytes, version: int) -> None:
        if version >= 0:  # else nothing has changed
            await self._directory.includes(incarnation, version, _LEARNED_SECONDS)
