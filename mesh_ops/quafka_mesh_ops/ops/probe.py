"""The op that probes the health of a broker, 0x31: for `quafka doctor`, which also measures the
round trip.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class ProbeResp(WireStruct):
    """The version, the wall clock and the health of the broker.

    Attributes:
        problem: the problem that keeps the broker from its work; empty: none.
        snapshot_interval_ms: the interval of scheduled snapshots; 0: none are scheduled.
        snapshot_age_ms: the age of the last one; -1: none.
        snapshot_problem: the error of the last attempt.
    """

    version: str
    now_ms: int
    cluster_id: str = ""
    problem: str = ""
    snapshot_interval_ms: int = 0
    snapshot_age_ms: int = -1
    snapshot_problem: str = ""


@wire_struct
class Probe(Op[ProbeResp]):
    """Probe the broker."""

    code = OpCode.PROBE


ALL: tuple[type[AnyOp], ...] = (Probe,)
