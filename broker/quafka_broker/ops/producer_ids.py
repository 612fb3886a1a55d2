"""Op 0x08, init producer id: a new id, or the next epoch of an id (KIP-360)."""

from __future__ import annotations

from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.records import InitProducerId, InitProducerIdResp
from quafka_proto.errors import ErrorCode

_LAST_EPOCH = 0x7FFF


async def handle(state: BrokerState, context: OpContext, op: InitProducerId) -> InitProducerIdResp:
    """Allocate a unique id, if the org may have one; or advance the epoch."""
    ours = state.producer_ids.is_allocated(op.producer_id)
    if ours and 0 <= op.producer_epoch < _LAST_EPOCH - 1:
        return InitProducerIdResp(op.producer_id, op.producer_epoch + 1)
    if not state.producer_ids.admit(context.org_id):  # clients retry
        return InitProducerIdResp(-1, -1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        return InitProducerIdResp(await state.producer_ids.allocate(context.org_id), 0)
    except StorageError:
        return InitProducerIdResp(-1, -1, ErrorCode.KAFKA_STORAGE_ERROR)
