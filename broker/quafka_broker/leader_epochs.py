"""Leader epochs (KIP-320): whether client and broker speak of the same leader, and the same log.

A virtual topic has had one leader, this broker, since its first record: there is one epoch.
"""

from __future__ import annotations

from quafka_mesh_ops.ops import EpochEnd
from quafka_proto.errors import ErrorCode

LEADER_EPOCH = 0
UNDEFINED = EpochEnd(-1, -1)
_NOT_SAID = -1


def check(current: int) -> ErrorCode:
    """What a client is told who believes in leader epoch `current`; -1: it does not say."""
    if current in (_NOT_SAID, LEADER_EPOCH):
        return ErrorCode.NONE
    if current < LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def end_of(epoch: int, high_watermark: int) -> EpochEnd:
    """Where an epoch's records end, in a log that ends at `high_watermark`."""
    return EpochEnd(epoch, high_watermark) if epoch == LEADER_EPOCH else UNDEFINED
