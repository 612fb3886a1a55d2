"""Ops 0x50 to 0x52: see quafka_mesh_ops.snapshot_ops and quafka_broker.snapshots.pins."""

from __future__ import annotations

import asyncio
import logging
import re

from quafka_broker.snapshots import pins
from quafka_broker.snapshots.source import PinnedFiles
from quafka_broker.state import BrokerState
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.server import OpContext
from quafka_mesh_ops.snapshot_ops import (
    MAX_READ,
    PinSnapshot,
    PinSnapshotResp,
    ReadPinned,
    ReadPinnedResp,
    UnpinSnapshot,
    UnpinSnapshotResp,
)
from quafka_proto.errors import ErrorCode

log = logging.getLogger("quafka.broker.snapshots")

_NAME = re.compile(r"remote-[0-9a-f]{16}")


async def pin(state: BrokerState, _context: OpContext, _op: PinSnapshot) -> PinSnapshotResp:
    """Take a cut, and hold it under a lease."""
    data = state.config.data
    try:
        name = await pins.pin(state, data, local=False)
        about = await asyncio.to_thread(pins.about, data, name)
    except OSError as e:
        log.warning("no snapshot can be taken: %s", e)
        raise OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR) from e
    return PinSnapshotResp(name, about)


async def read(state: BrokerState, _context: OpContext, op: ReadPinned) -> ReadPinnedResp:
    """Read what a pin holds; its lease begins anew."""
    _check(op.pin)
    if min(op.segment, op.position) < 0 or not 0 < op.size <= MAX_READ:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
    data = state.config.data
    files = PinnedFiles(pins.folder_of(data, op.pin))

    def renew_and_read() -> bytes:
        pins.renew(data, op.pin)
        how = files.index if op.index else files.log
        return how(op.segment, op.position, op.size)

    try:
        return ReadPinnedResp(await asyncio.to_thread(renew_and_read))
    except FileNotFoundError as e:  # its lease is over
        raise OpFailedError(ErrorCode.RESOURCE_NOT_FOUND) from e
    except OSError as e:
        log.warning("pin %s cannot be read: %s", op.pin, e)
        raise OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR) from e


async def unpin(state: BrokerState, _context: OpContext, op: UnpinSnapshot) -> UnpinSnapshotResp:
    """Let go of what a pin holds."""
    _check(op.pin)
    await asyncio.to_thread(pins.unpin, state.config.data, op.pin)
    return UnpinSnapshotResp(op.pin)


def _check(name: str) -> None:
    """Only what can be the name of a pin of ours may become part of a path."""
    if _NAME.fullmatch(name) is None:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
