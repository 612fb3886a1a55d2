"""Describes the topics of one broker in pages, and lists all of them only if they have changed.

An org may have hundreds of thousands of topics. Pages keep each op short in both programs' event
loops, and the last list is kept with its version. One listing runs at a time. Callers that come
while a listing runs share the next one, so no caller gets a list that was begun before its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_telemetry.tracing import TraceContext

PAGE = 2_000
"""Topics described by one op: some milliseconds of either event loop."""

Call = Callable[[DescribeTopics, TraceContext | None, float], Awaitable[DescribeTopicsResp]]
"""Sends one op; raises BrokerUnavailableError."""


class TopicLister:
    """Describes one broker's topics. The list in an answer may be shared: do not change it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._running: asyncio.Task[DescribeTopicsResp] | None = None
        self._next: asyncio.Task[DescribeTopicsResp] | None = None
        self._last = DescribeTopicsResp("", [])

    async def describe(
        self, op: DescribeTopics, trace: TraceContext | None, seconds: float
    ) -> DescribeTopicsResp:
        """Answer the op as a whole. The deadline `seconds` is for each page.

        Raises:
            BrokerUnavailableError: the broker did not answer, or failed the op.
        """
        if op.topics is None and not op.topic_ids:
            return await self._list_all(trace, seconds)
        names, ids = op.topics or [], op.topic_ids or []
        if len(names) + len(ids) <= PAGE:
            return await self._call(op, trace, seconds)
        found: list[TopicDescription] = []
        answer = self._last
        left = op.create_at_most
        for page in _pages(op, names, ids):
            answer = await self._call(replace(page, create_at_most=left), trace, seconds)
            found += answer.topics
            left = max(0, left - answer.created) if left >= 0 else left
        return replace(answer, topics=found)

    async def _list_all(self, trace: TraceContext | None, seconds: float) -> DescribeTopicsResp:
        if self._next is None:
            self._next = asyncio.create_task(self._list(self._running, trace, seconds))
            self._next.add_done_callback(_retrieve_exception)
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
        page = first = await self._call(op, trace, seconds)
        if first.unchanged and known.version:
            return known
        topics = list(first.topics)
        while page.more:
            following = DescribeTopics(at_most=PAGE, after=topics[-1].topic)
            page = await self._call(following, trace, seconds)
            topics += page.topics
        # A change after the first page gives the next listing another version.
        self._last = DescribeTopicsResp(first.cluster_id, topics, first.version)
        return self._last


def _pages(op: DescribeTopics, names: Sequence[str], ids: Sequence[bytes]) -> list[DescribeTopics]:
    by_name = [
        DescribeTopics([*names[at : at + PAGE]], auto_create=op.auto_create)
        for at in range(0, len(names), PAGE)
    ]
    by_id = [DescribeTopics([], [*ids[at : at + PAGE]]) for at in range(0, len(ids), PAGE)]
    return by_name + by_id


def _retrieve_exception(task: asyncio.Task[DescribeTopicsResp]) -> None:
    """All callers may have been cancelled: asyncio would log the exception as never retrieved."""
    if not task.cancelled():
        task.exception()
