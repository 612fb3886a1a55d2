"""The op that asks a broker how it is, 0x31: for `quafka doctor`, which also wants to see how
long an op takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct


@dataclass(frozen=True, slots=True)
class ProbeResp(WireStruct):
    """The broker's version and wall clock, and what keeps it from its work; empty: nothing.

    `snapshot_interval_ms`: how often it makes a snapshot by itself; 0: never. `snapshot_problem`:
    why the last attempt failed.
    """

    version: str
    now_ms: int
    cluster_id: str = ""
    problem: str = ""
    snapshot_interval_ms: int = 0
    snapshot_age_ms: int = -1
    snapshot_problem: str = ""


@dataclass(frozen=True, slots=True)
class Probe(Op[ProbeResp]):
    """Ask."""

    code = OpCode.PROBE


ALL: tuple[type[AnyOp], ...] = (Probe,)
