"""The op with which a gateway holds the lease for answers from its memory, 0x30."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct


@dataclass(frozen=True, slots=True)
class Change(WireStruct):
    """What was read of a partition is not to be served any more. `partition` -1: of all."""

    topic: str
    topic_id: bytes
    partition: int = -1


@dataclass(frozen=True, slots=True)
class HoldLeaseResp(WireStruct):
    """The lease runs for `valid_ms` from when it was asked for.

    `changes` are those after the ones heard of, up to `serial`. `forget`: not all of them are
    known any more; nothing that was learned before counts. `incarnation` names this run of the
    broker: what another one said, bytes included, counts for nothing.
    """

    incarnation: bytes
    serial: int
    valid_ms: int
    forget: bool
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class HoldLease(Op[HoldLeaseResp]):
    """Ask for the lease under which fetches may be answered from memory, or for a longer one.

    While `holder` (random bytes) has a lease, no topic is deleted and no log start moves until it
    has heard of the change: by asking again with that change's serial as `heard`. The op is parked
    for a while if there is nothing to say.
    """

    code = OpCode.HOLD_LEASE
    holder: bytes
    incarnation: bytes = b""
    heard: int = -1


ALL: tuple[type[AnyOp], ...] = (HoldLease,)
