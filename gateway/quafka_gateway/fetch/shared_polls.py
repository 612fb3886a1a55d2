"""Identical fetches are one op: who asks the same as somebody who is waiting shares the answer.

An answer may be shared if it is true of a moment after the request arrived (ADR on leases):

- one with records or watermarks: what was read since the op was sent is unchanged while the lease
  is valid and nobody has said otherwise. It must have what was acknowledged before the request
  arrived: the caller checks that (`Covers`);
- an empty one: that there is nothing to read is true of the moment when the broker's wait ended,
  not of the one when the op was sent. It serves those who came before that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from quafka_gateway.cluster import parked
from quafka_gateway.fetch.acknowledged import Moment
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer

Ask = Callable[[FetchOps, TraceContext | None], Awaitable[FetchOpsResp]]
Covers = Callable[[FetchOpsResp], bool]
"""Whether an answer has what was acknowledged when the request arrived."""
Key = tuple[tuple[FetchOp, ...], int, int, int]


@dataclass(slots=True, eq=False)
class _Poll:
    """One op on its way, and how many wait for it."""

    key: Key
    task: asyncio.Task[FetchOpsResp]
    began: float  # loop time
    ends: float  # loop time when the broker's wait is over, at the earliest
    moment: Moment  # when it began, as acknowledgements are counted
    waiters: int = 0


@dataclass(slots=True, eq=False)
class SharedPolls:
    """Ops that are parked at the broker or on their way, by what they ask."""

    ask: Ask
    shareable: Callable[[], bool]
    tracer: Tracer = field(default_factory=Tracer)
    now: Callable[[], Moment] = int
    _polls: dict[int, _Poll] = field(default_factory=dict[int, _Poll])  # by their key's hash

    def detach(self) -> None:
        """From now on nobody joins what was asked before."""
        self._polls.clear()

    async def fetch(
        self,
        op: FetchOps,
        trace: TraceContext | None,
        since: Callable[[Moment], Covers] = lambda _: lambda _: True,
    ) -> FetchOpsResp:
        """The answer to `op`, asked for or shared. Cancelled with the last who waits for it.

        `since`: what an answer has to have that was asked for at an earlier moment.
        """
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        deadline = arrived + op.max_wait_ms / 1000
        key: Key = (tuple(op.partitions), op.min_bytes, op.max_bytes, op.isolation_level)
        number = hash(key)  # once: it is long with a thousand partitions
        nothing: FetchOpsResp | None = None  # an empty answer that serves us
        while loop.time() < deadline and self.shareable():
            poll = self._polls.get(number)
            if poll is None:
                # With its whole wait, which others may need; we leave it when ours is over.
                poll = self._begin(key, number, op, trace)
                if nothing is None:
                    mine = await self._wait(number, poll, None)
                    assert mine is not None, "without a timeout there is an answer"
                    return mine
                answer = await self._wait(number, poll, deadline)
            elif poll.key != key:
                break
            else:
                covers = since(poll.moment)
                with self.tracer.start(semconv.GATEWAY_PARK, trace):
                    answer = await self._wait(number, poll, deadline)
                if answer is not None and _has_records(answer) and not covers(answer):
                    break
            if answer is None or not _may_be_shared(answer):
                break
            if _has_records(answer):
                return answer
            if not arrived <= poll.ends <= loop.time():
                break
            nothing = answer
        if nothing is not None and loop.time() >= deadline:
            return nothing
        answer = await self.ask(replace(op, max_wait_ms=_ms(deadline)), trace)
        parked.note(answer.parked_us / 1e6)
        return answer

    def _begin(self, key: Key, number: int, op: FetchOps, trace: TraceContext | None) -> _Poll:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run(op, trace))
        now = loop.time()
        ends = now + op.max_wait_ms / 1000
        poll = self._polls[number] = _Poll(key, task, now, ends, self.now())
        task.add_done_callback(lambda _: self._over(number, poll))
        return poll

    async def _run(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        return await self.ask(op, trace)

    def _over(self, number: int, poll: _Poll) -> None:
        if self._polls.get(number) is poll:
            del self._polls[number]

    async def _wait(self, number: int, poll: _Poll, until: float | None) -> FetchOpsResp | None:
        """The poll's answer; None: `until` came first."""
        poll.waiters += 1
        loop = asyncio.get_running_loop()
        came = loop.time()
        try:
            timeout = None if until is None else until - came
            done, _ = await asyncio.wait({poll.task}, timeout=timeout)
            now = loop.time()
            if not done:
                parked.note(now - came)
                return None
            answer = poll.task.result()
            # Who came later has seen the end of the op: what was not parked of it is his as well.
            at_work = now - poll.began - answer.parked_us / 1e6
            parked.note(now - came - at_work)
            return answer
        finally:
            poll.waiters -= 1
            if not poll.waiters and not poll.task.done():
                self._over(number, poll)
                poll.task.cancel()


def _has_records(answer: FetchOpsResp) -> bool:
    return any(part.records for part in answer.partitions)


def _may_be_shared(answer: FetchOpsResp) -> bool:
    return answer.leased and not any(part.error_code for part in answer.partitions)


def _ms(deadline: float) -> int:
    return max(0, int((deadline - asyncio.get_running_loop().time()) * 1000))
