"""Ops 0x50 to 0x55: see quafka_mesh_ops.ops.snapshots and quafka_broker.snapshots.pins.

The mesh server has checked that the node may snapshot every org (0x50 to 0x52), or the org of the
envelope (0x53 to 0x55). The handlers check that a pin belongs to the node, and is of that org.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quafka_broker.snapshots import pins
from quafka_broker.snapshots.cut import WHOLE_LOG
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.org_reader import read_org
from quafka_broker.state import BrokerState
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.snapshots import (
    MAX_READ,
    PinOrg,
    PinSnapshot,
    PinSnapshotResp,
    ReadOrgPinned,
    ReadOrgPinnedResp,
    ReadPinned,
    ReadPinnedResp,
    UnpinOrg,
    UnpinSnapshot,
    UnpinSnapshotResp,
)
from quafka_proto.errors import ErrorCode, Malformed

log = logging.getLogger("quafka.broker.snapshots")

T = TypeVar("T")


async def pin(state: BrokerState, context: OpContext, _op: PinSnapshot) -> PinSnapshotResp:
    """Take a cut of the whole log, and hold it under a lease."""
    return await _pin(state, context, WHOLE_LOG)


async def pin_org(state: BrokerState, context: OpContext, _op: PinOrg) -> PinSnapshotResp:
    """Take a cut for the reading of one org, and hold it under a lease."""
    return await _pin(state, context, context.org_id)


async def read(state: BrokerState, context: OpContext, op: ReadPinned) -> ReadPinnedResp:
    """Read the contents of a pin, and renew its lease."""
    folder = _own(state, context, op.pin, WHOLE_LOG)
    if min(op.segment, op.position) < 0 or not 0 < op.size <= MAX_READ:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
    files = PinnedFiles(folder)
    how = files.index if op.index else files.log
    return ReadPinnedResp(
        await _renewed(state, op.pin, lambda: how(op.segment, op.position, op.size))
    )


async def read_org_pinned(
    state: BrokerState, context: OpContext, op: ReadOrgPinned
) -> ReadOrgPinnedResp:
    """Read one org's entries, and renew the pin's lease."""
    folder = _own(state, context, op.pin, context.org_id)
    if min(op.segment, op.first_row, op.skip) < 0 or not 0 <= op.size <= MAX_READ:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
    files, org = PinnedFiles(folder), context.org_id
    return await _renewed(state, op.pin, lambda: read_org(files, org, op))


async def unpin(state: BrokerState, context: OpContext, op: UnpinSnapshot) -> UnpinSnapshotResp:
    """Let go of what a pin holds."""
    return await _unpin(state, context, op.pin, WHOLE_LOG)


async def unpin_org(state: BrokerState, context: OpContext, op: UnpinOrg) -> UnpinSnapshotResp:
    """Let go of what a pin holds."""
    return await _unpin(state, context, op.pin, context.org_id)


async def _pin(state: BrokerState, context: OpContext, org: int) -> PinSnapshotResp:
    data = state.configs.broker.folder
    try:
        name = await pins.pin(state, data, local=False, owner=context.peer, org=org)
        about = await asyncio.to_thread(pins.encoded_cut, data, name)
    except pins.TooManyPinsError as e:
        log.warning("node %s can take no snapshot: %s", context.peer[:16], e)
        raise OpFailedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED) from e
    except OSError as e:
        log.warning("cannot take a cut for a snapshot: %s", e)
        raise OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR) from e
    return PinSnapshotResp(name, about)


async def _renewed(state: BrokerState, name: str, how: Callable[[], T]) -> T:
    """Renew a pin and read it, in a thread."""
    limits = pins.PinLimits.of(state.configs.broker)

    def renew_and_read() -> T:
        pins.renew(state.configs.broker.folder, name, limits)
        return how()

    try:
        return await asyncio.to_thread(renew_and_read)
    except FileNotFoundError as e:  # it has ended
        raise OpFailedError(ErrorCode.RESOURCE_NOT_FOUND) from e
    except (OSError, Malformed) as e:
        log.warning("pin %s cannot be read: %s", name, e)
        raise OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR) from e


async def _unpin(state: BrokerState, context: OpContext, name: str, org: int) -> UnpinSnapshotResp:
    _own(state, context, name, org)
    await asyncio.to_thread(pins.unpin, state.configs.broker.folder, name)
    return UnpinSnapshotResp(name)


def _own(state: BrokerState, context: OpContext, name: str, org: int) -> Path:
    """The folder of a pin that belongs to the node and to this org.

    Only a valid name of a pin may become part of a path.
    """
    found = pins.owner_of(name)
    if found is None:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
    owner, whose = found
    if owner not in ("", context.peer) or whose != org:
        raise OpFailedError(ErrorCode.RESOURCE_NOT_FOUND)
    return pins.folder_of(state.configs.broker.folder, name)
