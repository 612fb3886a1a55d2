"""Handlers of ops, which the mesh server calls with the context of the op."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import AnyStruct
from quafka_telemetry.tracing import TraceContext, Tracer, trace_fields


@dataclass(slots=True, eq=False)
class OpContext:
    """The context of an op, for its handler.

    Attributes:
        org_id: the org of the op.
        trace: the context of the handle span; None if the op is not sampled.
        deadline: the loop time at which the handler is cancelled.
        peer: the node that sent the op.
        tracer: starts the handler's own spans.
        request_id: identifies the op on its connection.
        ack_parent: set by a handler to have a span "kafkaop.ack" cover the hand-over of the
            response, as a child of this context. The caller's "kafkaop.ack_received" continues it.
    """

    org_id: int
    trace: TraceContext | None
    deadline: float
    peer: NodeId
    tracer: Tracer
    request_id: int = 0
    ack_parent: TraceContext | None = None

    async def may_read(self) -> None:
        """Wait until the handler may read data for a large answer.

        A connection admits a bounded number of ops at a time, and none while its peer has not read
        earlier answers. Without a connection, as here, there is nothing to wait for.
        """

    @property
    def party(self) -> int:
        """See LogSource."""
        return self.org_id

    def log_fields(self) -> dict[str, str]:
        """See LogSource."""
        request_id = f"{self.peer[:8]}-{self.request_id}"
        return {"request_id": request_id, **trace_fields(self.trace)}


Handler = Callable[[OpContext, Any], Awaitable[AnyStruct]]
"""Answers one type of op; `Op.handled_by` checks the types of both at registration."""
