"""Ops 0x70 to 0x75: orgs, users, ACLs and quotas; see quafka_broker.security."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from quafka_broker.partitions.errors import StorageError
from quafka_broker.security.checks import MOST_CHANGES, Refusal
from quafka_broker.state import BrokerState
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.security import (
    AlterOrg,
    AlterOrgResp,
    AlterQuotas,
    AlterUsers,
    ChangedResp,
    CreateAcls,
    DeleteAcls,
    DeleteAclsResp,
    DeletedAcls,
    OrgRecord,
    WatchSecurity,
    WatchSecurityResp,
)
from quafka_proto.errors import ErrorCode

log = logging.getLogger("quafka.broker.security")

_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


async def watch(state: BrokerState, context: OpContext, op: WatchSecurity) -> WatchSecurityResp:
    """Answer with the changes of the orgs that the node may serve, once there are any."""
    if state.security.journal.incomplete:
        raise OpFailedError(_STORAGE_ERROR)
    security = state.security
    if op.wants_secret:
        try:
            await security.make_secret()
        except StorageError as e:  # gateways continue with their own secrets
            log.warning("the secret of the gateways cannot be written now: %s", e)
    answer = await security.watchers.watch(context.peer, op)
    return replace(answer, secret=security.table.secret) if op.wants_secret else answer


async def alter_users(state: BrokerState, context: OpContext, op: AlterUsers) -> ChangedResp:
    """Set and remove users' credentials."""
    _check_number(op.changes)
    try:
        refused = await state.security.alter_users(context.org_id, op.changes)
    except StorageError as e:
        return _failed(len(op.changes), e)
    return _changed(state, context, refused)


async def create_acls(state: BrokerState, context: OpContext, op: CreateAcls) -> ChangedResp:
    """Add rules."""
    _check_number(op.acls)
    try:
        refused = await state.security.create_acls(context.org_id, op.acls)
    except StorageError as e:
        return _failed(len(op.acls), e)
    return _changed(state, context, refused)


async def delete_acls(state: BrokerState, context: OpContext, op: DeleteAcls) -> DeleteAclsResp:
    """Remove the rules that match filters."""
    _check_number(op.filters)
    try:
        found = await state.security.delete_acls(context.org_id, op.filters)
    except StorageError:
        return DeleteAclsResp([DeletedAcls(_STORAGE_ERROR, [])] * len(op.filters), -1, b"")
    results = [DeletedAcls(error, acls) for error, acls in found]
    return DeleteAclsResp(results, *_reached(state, context))


async def alter_quotas(state: BrokerState, context: OpContext, op: AlterQuotas) -> ChangedResp:
    """Set and remove quotas."""
    _check_number(op.changes)
    try:
        refused = await state.security.alter_quotas(context.org_id, op.changes)
    except StorageError as e:
        return _failed(len(op.changes), e)
    return _changed(state, context, refused)


async def alter_org(state: BrokerState, context: OpContext, op: AlterOrg) -> AlterOrgResp:
    """Create, limit, suspend or delete an org."""
    try:
        found = await state.security.alter_org(op)
    except StorageError as e:
        return AlterOrgResp(_STORAGE_ERROR, None, -1, b"", str(e))
    if isinstance(found, OrgRecord):
        return AlterOrgResp(0, found, *_reached(state, context))
    return AlterOrgResp(found.code, None, -1, b"", found.message)


def _check_number(changes: Sequence[object]) -> None:
    if len(changes) > MOST_CHANGES:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)


def _reached(state: BrokerState, context: OpContext) -> tuple[int, bytes]:
    """The version and incarnation that include the last change."""
    security = state.security
    return security.table.version, security.watchers.incarnation(context.peer)


def _changed(
    state: BrokerState, context: OpContext, refused: Sequence[Refusal | None]
) -> ChangedResp:
    codes: list[int] = [ErrorCode.NONE if each is None else each.code for each in refused]
    messages = ["" if each is None else each.message for each in refused] if any(codes) else []
    return ChangedResp(codes, *_reached(state, context), messages)


def _failed(changes: int, error: StorageError) -> ChangedResp:
    return ChangedResp([_STORAGE_ERROR] * changes, -1, b"", [str(error)] * changes)
