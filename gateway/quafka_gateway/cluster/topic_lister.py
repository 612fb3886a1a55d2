"""Asks one broker for topics, some at a time, and for all of them only if they have changed.

All topics of an org may be hundreds of thousands: they come in pages, so that neither program's
event loop is held, and are kept with their version. One listing runs at a time. Whoever asks while
it runs waits for the next one, which then is for all of them: nobody is given a list that was begun
before the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_telemetry.tracing import TraceContext

PAGE = 2_000
"""Topics described by one op: some milliseconds of either event loop."""

Ask = Callable[[DescribeTopics, TraceContext | None, float], Awaitable[DescribeTopicsResp]]
"""Sends one op; raises UnavailableError or OpFailedError."""


class TopicLister:
    """What one broker's topics are. An answer's list may be shared: it is not to be changed."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._running: asyncio.Task[DescribeTopicsResp] | None = None
        self._next: asyncio.Task[DescribeTopicsResp] | None = None
        self._last = DescribeTopicsResp("", [])

    async def describe(
        self, op: DescribeTopics, trace: TraceContext | None, seconds: float
    ) -> DescribeTopicsResp:
        """Answer the op as a whole. The deadline is each page's.

        Raises:
            UnavailableError: the broker does not answer.
            OpFailedError: it answers an error.
        """
        if op.topics is None and not op.topic_ids:
            return await self._every(trace, seconds)
        names, ids = op.topics or [], op.topic_ids or []
        if len(names) + len(ids) <= PAGE:
            return await self._ask(op, trace, seconds)
        found: list[TopicDescription] = []
        answer = self._last
        left = op.create_at_most
        for page in _pages(op, names, ids):
            answer = await self._ask(replace(page, create_at_most=left), trace, seconds)
            found += answer.topics
            left = max(0, left - answer.created) if left >= 0 else left
        return replace(answer, topics=found)

    async def _every(self, trace: TraceContext | None, seconds: float) -> DescribeTopicsResp:
        if self._next is None:
            self._next = asyncio.create_task(self._list(self._running, trace, seconds))
            self._next.add_done_callback(_seen)
        return await asyncio.shield(self._next)

    async def _list(
        self,
        before: asyncio.Task[DescribeTopicsResp] | None,
        trace: TraceContext | None,
        seconds: float,
    ) -> DescribeTopicsResp:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        known = self._last
        op = DescribeTopics(at_most=PAGE, known=known.version)
        page = first = await self._ask(op, trace, seconds)
        if first.unchanged and known.version:
            return known
        topics = list(first.topics)
        while page.more:
            following = DescribeTopics(at_most=PAGE, after=topics[-1].topic)
            page = await self._ask(following, trace, seconds)
            topics += page.topics
        # What has changed since the first page gives the next listing another version.
        self._last = DescribeTopicsResp(first.cluster_id, topics, first.version)
        return self._last


def _pages(op: DescribeTopics, names: Sequence[str], ids: Sequence[bytes]) -> list[DescribeTopics]:
    by_name = [
        DescribeTopics([*names[at : at + PAGE]], auto_create=op.auto_create)
        for at in range(0, len(names), PAGE)
    ]
    by_id = [DescribeTopics([], [*ids[at : at + PAGE]]) for at in range(0, len(ids), PAGE)]
    return by_name + by_id


def _seen(task: asyncio.Task[DescribeTopicsResp]) -> None:
    """Its callers may have gone: then nobody else looks at what it raised."""
    if not task.cancelled():
        task.exception()
