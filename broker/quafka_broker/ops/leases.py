"""Op 0x30, hold lease: see quafka_broker.leases."""

from __future__ import annotations

from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp


async def handle(state: BrokerState, context: OpContext, op: HoldLease) -> HoldLeaseResp:
    """Grant or extend a gateway's lease."""
    return await state.leases.hold(context.org_id, context.peer, op)
