"""The op that probes the health of a broker, 0x31: for `quafka doctor`, which also measures the
round trip.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_proto.schema.quafka import GatewayServer


@wire_struct
class ProbeResp(WireStruct):
    """The version, the wall clock and the health of the broker.

    Attributes:
        problem: the problem that keeps the broker from its work; empty: none.
        snapshot_interval_ms: the interval of scheduled snapshots; 0: none are scheduled.
        snapshot_age_ms: the age of the last one; -1: none.
        snapshot_problem: the error of the last attempt.
        open_transactions: transactional ids with an open transaction.
        oldest_transaction_ms: the age of the oldest of these transactions; -1: none is open.
        overdue_transaction_ms: how long the most overdue one has passed its timeout; 0: none has.
        servers: those that have the records of topics of the org.
        unfinished_transactions: those that other brokers have not ended yet.
        unfinished_transaction_ms: how long ago the first of them has ended here; 0: none.
    """

    version: str
    now_ms: int
    cluster_id: str = ""
    problem: str = ""
    snapshot_interval_ms: int = 0
    snapshot_age_ms: int = -1
    snapshot_problem: str = ""
    open_transactions: int = 0
    oldest_transaction_ms: int = -1
    overdue_transaction_ms: int = 0
    servers: list[GatewayServer] | None = None
    unfinished_transactions: int = 0
    unfinished_transaction_ms: int = 0


@wire_struct
class Probe(Op[ProbeResp]):
    """Probe the broker."""

    code = OpCode.PROBE


ALL: tuple[type[AnyOp], ...] = (Probe,)
