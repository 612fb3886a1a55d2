"""The op that holds a gateway's lease, under which it answers fetches from memory, 0x30."""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class LeaseChange(WireStruct):
    """A partition whose cached records must no longer be served. `partition` -1: all of them."""

    topic: str
    topic_id: bytes
    partition: int = -1


@wire_struct
class HoldLeaseResp(WireStruct):
    """The lease is valid for `valid_ms` from the moment of the request.

    Attributes:
        incarnation: identifies this run of the broker; data of another run is invalid, bytes
            included.
        serial: the serial of the last change in `changes`.
        forget: the broker no longer knows all changes; all data read before is invalid.
        changes: the changes after the op's `heard`.
    """

    incarnation: bytes
    serial: int
    valid_ms: int
    forget: bool
    changes: list[LeaseChange]


@wire_struct
class HoldLease(Op[HoldLeaseResp]):
    """Request or extend the lease under which a gateway may answer fetches from memory.

    While `holder` (random bytes) has a lease, the broker deletes no topic and moves no log start
    until the holder has acknowledged the change: by an op with that change's serial as `heard`.
    The broker parks the op for a while without changes.
    """

    code = OpCode.HOLD_LEASE
    parks = True
    holder: bytes
    incarnation: bytes = b""
    heard: int = -1


ALL: tuple[type[AnyOp], ...] = (HoldLease,)
