"""Holds heartbeats for a moment, and sends them to the broker in one op.

An op alone costs both processes several times as much as one more member in an op: packets, turns
of the event loop, call, deadline, task, rights and answer are per op. Members of groups send a
heartbeat every three seconds and do not wait for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from quafka_gateway.cluster.parked_time import add_parked
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_mesh_ops.ops.groups import Heartbeat, HeartbeatResp, JoinedHeartbeat

HOLD_SECONDS = 0.1
"""How long a heartbeat is held at most; it delays the news of a rebalance by as much."""
MOST = 32
"""Heartbeats that fill an op: their requests are answered in one call."""


class _Held(DirectFuture[int]):
    """A member's heartbeat, and its error code."""

    def __init__(self, op: Heartbeat, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.op = op
        self.left_at = 0.0


class JointHeartbeats:
    """The heartbeats that are held for one broker."""

    def __init__(self, call: Callable[[Heartbeat], Coroutine[Any, Any, HeartbeatResp]]) -> None:
        """`call` sends an op."""
        self.waiting: list[_Held] = []
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, op: Heartbeat) -> int:
        """Send a heartbeat together with others; its error code. Raises what the call raises.

        The wait for others is at most HOLD_SECONDS, and counts as parked.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        held = _Held(op, loop)
        self.waiting.append(held)
        if len(self.waiting) >= MOST:
            self.release()
        elif self._timer is None:  # after an early release it only fires sooner
            self._timer = loop.call_later(HOLD_SECONDS, self._time_is_over)
        code = await held
        add_parked(held.left_at - began)
        return code

    def release(self) -> None:
        """Send all held heartbeats."""
        waiting = [held for held in self.waiting if not held.done()]  # the others were cancelled
        self.waiting = []
        if waiting:
            first, *others = waiting
            op = replace(first.op, others=[_beat(held.op) for held in others]) if others else None
            self._send(op or first.op, waiting)

    def _send(self, op: Heartbeat, members: Sequence[_Held]) -> None:
        loop = members[0].get_loop()
        now = loop.time()
        for held in members:
            held.left_at = held.left_at or now
        task = EagerTask(self._call(op), loop)
        task.add_direct_callback(partial(self._answered, members, task))

    def _answered(self, members: Sequence[_Held], task: EagerTask[HeartbeatResp]) -> None:
        """Answer the members. Each continues in this call."""
        if task.cancelled():
            for held in members:
                held.cancel()
            return
        error = task.exception()
        if error is not None:
            for held in members:
                if not held.done():
                    held.set_exception(error)
            return
        answer = task.result()
        codes = [answer.error_code, *(answer.others or ())]
        for held, code in zip(members, codes, strict=False):
            if not held.done():
                held.set_result(code)
        for held in members[len(codes) :]:  # an older broker sees the first one only
            if not held.done():
                self._send(held.op, [held])

    def _time_is_over(self) -> None:
        self._timer = None
        self.release()


def _beat(op: Heartbeat) -> JoinedHeartbeat:
    return JoinedHeartbeat(op.group, op.generation, op.member_id, op.instance_id)
