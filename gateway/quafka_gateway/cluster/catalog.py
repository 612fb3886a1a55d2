"""The topics of several brokers as one list, and which broker has which.

A broker's topic counts only where the route table sends its name: a topic that was left behind
when a rule changed is not shown twice. A topic of a broker that is away is shown as it was last
seen; one that was never seen is LEADER_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quafka_gateway.cluster.broker_link import UnavailableError
from quafka_gateway.cluster.routes import OrgRoutes
from quafka_gateway.cluster.topic_book import TopicBook
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_GONE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)

Ask = Callable[[int, DescribeTopics, TraceContext | None], Awaitable[DescribeTopicsResp | None]]
"""Describes topics of one broker; None: it is away."""

AWAY = -1
"""In place of a broker's number: it cannot be told while one of them is away."""


class Catalog:
    """What the brokers of one org have.

    `cluster_id` is the home broker's, and no other's; empty until that has answered once.
    """

    def __init__(self, routes: OrgRoutes, ask: Ask) -> None:
        self._routes = routes
        self._ask = ask
        self._book = TopicBook(len(routes.brokers))
        self._finding = asyncio.Lock()
        self._to_find = 0
        self._all = DescribeTopicsResp("", [])
        self.cluster_id = ""

    async def describe(self, op: DescribeTopics, trace: TraceContext | None) -> DescribeTopicsResp:
        """Ask every broker that is concerned, at once.

        Raises:
            UnavailableError: all topics are asked for, no broker answers, and none has before.
        """
        if op.topics is None and not op.topic_ids:
            return await self._every(trace)
        return DescribeTopicsResp(self.cluster_id, await self._asked_for(op, trace))

    async def brokers_of(
        self, topics: Sequence[tuple[str, bytes]], trace: TraceContext | None
    ) -> list[int]:
        """The broker of each topic, by name or, where that is empty, by id; or AWAY.

        Unknown ids are asked for. Calls return in the order in which they were made, and those
        that need not ask return without giving way to others, unless one before them asks.
        """
        unknown = [i for name, i in topics if not name and self._book.broker_of(i) is None]
        everybody_was_asked = True
        if unknown or self._to_find:
            self._to_find += 1
            try:
                async with self._finding:
                    everybody_was_asked = await self._find(unknown, trace)
            finally:
                self._to_find -= 1
        # Somebody has to say that nobody has it; the home broker does.
        otherwise = self._routes.home if everybody_was_asked else AWAY
        return [self._broker_of(name, topic_id, otherwise) for name, topic_id in topics]

    def forget(self, name: str) -> None:
        """This topic was deleted."""
        self._book.forget(self._routes.broker_of(name), name)

    def _broker_of(self, name: str, topic_id: bytes, otherwise: int) -> int:
        if name:
            return self._routes.broker_of(name)
        known = self._book.broker_of(topic_id)
        return otherwise if known is None else known

    async def _find(self, ids: list[bytes], trace: TraceContext | None) -> bool:
        """Learn where these are; whether all brokers have answered."""
        ids = [i for i in dict.fromkeys(ids) if self._book.broker_of(i) is None]
        if not ids:
            return True
        op = DescribeTopics(topics=[], topic_ids=ids)
        return None not in await self._gather([op] * len(self._routes.brokers), trace)

    async def _every(self, trace: TraceContext | None) -> DescribeTopicsResp:
        brokers = range(len(self._routes.brokers))
        answers = await asyncio.gather(*(self._ask(b, DescribeTopics(), trace) for b in brokers))
        versions = [answer.version for answer in answers if answer is not None]
        version = b"".join(versions) if len(versions) == len(brokers) and all(versions) else b""
        if version and version == self._all.version:
            return self._all
        for b, answer in zip(brokers, answers, strict=True):
            if answer is not None:
                if b == self._routes.home:
                    self.cluster_id = answer.cluster_id
                await self._book.learn_all(b, filter(self._belongs(b), answer.topics))
        topics = [topic for b in brokers for topic in self._book.every(b)]
        if not topics and not any(answers):
            raise UnavailableError("no broker answers")  # that there are no topics is not known
        topics.sort(key=lambda topic: topic.topic)
        self._all = DescribeTopicsResp(self.cluster_id, topics, version)
        return self._all

    async def _asked_for(
        self, op: DescribeTopics, trace: TraceContext | None
    ) -> list[TopicDescription]:
        names, ids = op.topics or [], op.topic_ids or []
        ops: list[DescribeTopics | None] = []
        for b in range(len(self._routes.brokers)):
            its_names = [name for name in names if self._routes.broker_of(name) == b]
            its_ids = [i for i in ids if self._book.broker_of(i) in (None, b)]
            needed = its_names or its_ids or (b == self._routes.home and not self.cluster_id)
            ops.append(
                DescribeTopics(its_names, its_ids, op.auto_create, create_at_most=op.create_at_most)
                if needed
                else None
            )
        answers = await self._gather(ops, trace)
        away = {b for b, op in enumerate(ops) if op is not None and answers[b] is None}
        found = {
            topic.topic: topic
            for op, answer in zip(ops, answers, strict=True)
            if op is not None and answer is not None
            for topic in answer.topics[: len(op.topics or [])]  # names come before ids
        }
        return [
            *(self._named(name, found, away) for name in names),
            *(self._with_id(topic_id, bool(away)) for topic_id in ids),
        ]

    def _named(
        self, name: str, found: dict[str, TopicDescription], away: set[int]
    ) -> TopicDescription:
        b = self._routes.broker_of(name)
        if b not in away and name in found:
            return found[name]
        last_seen = self._book.named(b, name)
        return last_seen or TopicDescription(name, b"", 0, ErrorCode.LEADER_NOT_AVAILABLE)

    def _with_id(self, topic_id: bytes, one_is_away: bool) -> TopicDescription:
        missing = ErrorCode.LEADER_NOT_AVAILABLE if one_is_away else ErrorCode.UNKNOWN_TOPIC_ID
        return self._book.by_id(topic_id) or TopicDescription("", topic_id, 0, missing)

    async def _gather(
        self, ops: Sequence[DescribeTopics | None], trace: TraceContext | None
    ) -> list[DescribeTopicsResp | None]:
        """Ask and learn. No op, no question."""
        asked = [b for b, op in enumerate(ops) if op is not None]
        questions = [self._ask(b, op, trace) for b, op in enumerate(ops) if op is not None]
        answers: list[DescribeTopicsResp | None] = [None] * len(ops)
        for b, answer in zip(asked, await asyncio.gather(*questions), strict=True):
            answers[b] = answer
            if answer is not None:
                self._learn(b, answer)
        return answers

    def _learn(self, b: int, answer: DescribeTopicsResp) -> None:
        if b == self._routes.home and answer.cluster_id:
            self.cluster_id = answer.cluster_id
        belongs = self._belongs(b)
        for topic in answer.topics:
            if topic.error_code in _GONE and topic.topic:
                self._book.forget(b, topic.topic)
            elif topic.error_code in _GONE:
                self._book.forget_id(b, topic.topic_id)
            elif belongs(topic):
                self._book.learn(b, topic)

    def _belongs(self, b: int) -> Callable[[TopicDescription], bool]:
        def belongs(topic: TopicDescription) -> bool:
            return not topic.error_code and self._routes.broker_of(topic.topic) == b

        return belongs
