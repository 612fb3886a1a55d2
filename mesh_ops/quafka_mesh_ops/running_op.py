"""One op at the broker, from its frame to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from quafka_loop.deadlines import Bucket
from quafka_loop.eager_task import EagerTask
from quafka_mesh_ops.envelopes import RequestEnvelope
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import AnyOp
from quafka_telemetry.tracing import Tracer

REQUEST_TIMED_OUT = 7
"""The Kafka error code of an op whose deadline has passed."""


class RunningOp(OpContext):
    """An op between its frame and its answer, and the context of its handler.

    Attributes:
        stream_id: the stream that the op arrived on.
        shard: the shard that it is for; None: it concerns the broker.
        size: the bytes of its payload; once it is decoded, with the memory that it takes.
        task: reads the op or runs its handler; None before.
        expiring: the bucket that it is in until its handler ends; None for one that did not wait.
        reads: whether it has asked for a turn to read.
        stopped: the error code to answer instead of a cancelled handler; None if the caller has
            given up the op.
    """

    __slots__ = ("_admit", "expiring", "handler", "op_type", "reads", "request", "shard", "size",
                 "stopped", "stream_id", "task")  # fmt: skip

    def __init__(
        self,
        stream_id: int,
        request: RequestEnvelope,
        op_type: type[AnyOp],
        handler: Handler,
        deadline: float,
        size: int,
        peer: NodeId,
        tracer: Tracer,
        admit: Callable[[int, int], Awaitable[None]],
    ) -> None:
        self.org_id = request.org_id
        self.trace = None
        self.deadline = deadline
        self.peer = peer
        self.tracer = tracer
        self.request_id = request.request_id
        self.ack_parent = None
        self.stream_id = stream_id
        self.shard: int | None = None
        self.request = request
        self.op_type = op_type
        self.handler = handler
        self.size = size
        self.task: asyncio.Task[None] | EagerTask[None] | None = None
        self.expiring: Bucket | None = None
        self.reads = False
        self.stopped: int | None = None
        self._admit = admit

    async def may_read(self) -> None:
        """See OpContext."""
        self.reads = True
        await self._admit(self.request_id, self.org_id)

    def expire(self) -> None:
        """See Expiring."""
        self.stop(REQUEST_TIMED_OUT)

    def stop(self, error_code: int) -> None:
        """Cancel the handler; the op is answered with the error code."""
        if self.stopped is None:
            self.stopped = error_code
            self.cancel()

    def cancel(self) -> None:
        """Cancel the handler in the next turn of the loop.

        A task that never begins never cleans up, and an eager task may be in its first step.
        """
        asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
