"""The topics of several brokers as one list, and which broker has which topic id.

A broker's topic counts only if the route table sends its name to that broker: a topic that stayed
at its old broker when a rule changed is not listed twice. A topic of an unavailable broker is
shown as the gateway last saw it; one that it never saw is LEADER_NOT_AVAILABLE, which clients
retry. There is no list of all topics while a broker is unavailable of which the gateway has never
seen the topics: clients would take them for deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.routes import OrgRoutes
from quafka_gateway.cluster.topic_book import TopicBook
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_DELETED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)

Describe = Callable[
    [int, DescribeTopics, TraceContext | None], Awaitable[DescribeTopicsResp | None]
]
"""Describes topics of the broker with this number; None: the broker is unavailable."""

NamedTopic = tuple[str, bytes]
"""A topic by name or, if the name is empty, by id."""

UNKNOWN_BROKER = -1
"""Instead of a broker's number: an unavailable broker may have the topic with this id."""


class Catalog:
    """The topics of one org's brokers.

    `cluster_id` is that of the cluster of shards or, without one, the home broker's; empty until
    the home broker has answered once.
    """

    def __init__(self, routes: OrgRoutes, describe: Describe, cluster_id: str = "") -> None:
        self._routes = routes
        self._describe = describe
        self._book = TopicBook(len(routes.brokers))
        self._finding = asyncio.Lock()
        self._to_find = 0
        self._all = DescribeTopicsResp("", [])
        self._listed: set[int] = set()
        """The brokers whose list of topics was seen as a whole."""
        self.cluster_id = cluster_id
        self._is_named = bool(cluster_id)

    async def describe(self, op: DescribeTopics, trace: TraceContext | None) -> DescribeTopicsResp:
        """Send the op to every broker that may have one of the topics, all at once.

        Raises:
            BrokerUnavailableError: the op is for all topics, and a broker does not answer and never
                has.
        """
        if op.topics is None and not op.topic_ids:
            return await self._describe_all(trace)
        found = await self._describe_some(op, trace)  # the home broker's answer has the cluster id
        return DescribeTopicsResp(self.cluster_id, found)

    async def describe_elsewhere(
        self, topics: Sequence[NamedTopic], here: int, trace: TraceContext | None
    ) -> dict[NamedTopic, TopicDescription]:
        """Describe those of the topics that are at other brokers than the one with this number."""
        brokers = await self.brokers_of(topics, trace)
        elsewhere = [t for t, b in zip(topics, brokers, strict=True) if b != here]
        if not elsewhere:
            return {}
        by_name = [topic for topic in elsewhere if topic[0]]
        by_id = [topic for topic in elsewhere if not topic[0]]
        op = DescribeTopics([name for name, _ in by_name], [topic_id for _, topic_id in by_id])
        found = await self._describe_some(op, trace)
        return dict(zip([*by_name, *by_id], found, strict=True))

    async def brokers_of(
        self, topics: Sequence[NamedTopic], trace: TraceContext | None
    ) -> list[int]:
        """The number of each topic's broker, or UNKNOWN_BROKER.

        Ids that the gateway has not seen are looked up at all brokers. Calls return in the order
        in which they were made. A call without a lookup does not yield to other tasks, unless the
        lookup of an earlier call is running.
        """
        if len(self._routes.brokers) == 1:
            return [0] * len(topics)
        unknown = [i for name, i in topics if not name and self._book.broker_of(i) is None]
        all_answered = True
        if unknown or self._to_find:
            self._to_find += 1
            try:
                async with self._finding:
                    all_answered = await self._find(unknown, trace)
            finally:
                self._to_find -= 1
        # If no broker has the id, the home broker answers the op with the error.
        otherwise = self._routes.home if all_answered else UNKNOWN_BROKER
        return [self._broker_of(name, topic_id, otherwise) for name, topic_id in topics]

    def add(self, name: str, topic_id: bytes, partitions: int) -> None:
        """The topic was created: show it so even if its broker is unavailable."""
        self._book.add(self._routes.broker_of(name), TopicDescription(name, topic_id, partitions))

    def remove(self, name: str) -> None:
        """The topic with this name was deleted."""
        self._book.remove(self._routes.broker_of(name), name)

    def extend(self, name: str, partitions: int) -> None:
        """The topic with this name was extended: show it so even if its broker is unavailable."""
        b = self._routes.broker_of(name)
        known = self._book.named(b, name)
        if known is not None and known.partitions < partitions:
            self._book.add(b, replace(known, partitions=partitions))

    def _broker_of(self, name: str, topic_id: bytes, otherwise: int) -> int:
        if name:
            return self._routes.broker_of(name)
        known = self._book.broker_of(topic_id)
        return otherwise if known is None else known

    async def _find(self, ids: list[bytes], trace: TraceContext | None) -> bool:
        """Learn which brokers have these ids. False: some broker did not answer."""
        ids = [i for i in dict.fromkeys(ids) if self._book.broker_of(i) is None]
        if not ids:
            return True
        op = DescribeTopics(topics=[], topic_ids=ids)
        return None not in await self._send([op] * len(self._routes.brokers), trace)

    async def _describe_all(self, trace: TraceContext | None) -> DescribeTopicsResp:
        brokers = range(len(self._routes.brokers))
        op = DescribeTopics()
        answers = await asyncio.gather(*(self._describe(b, op, trace) for b in brokers))
        versions = [answer.version for answer in answers if answer is not None]
        version = b"".join(versions) if len(versions) == len(brokers) and all(versions) else b""
        if version and version == self._all.version:
            return self._all
        for b, answer in zip(brokers, answers, strict=True):
            if answer is not None:
                if b == self._routes.home and not self._is_named:
                    self.cluster_id = answer.cluster_id
                await self._book.replace(b, filter(self._belongs(b), answer.topics))
                self._listed.add(b)
        if len(self._listed) < len(brokers):
            missing = ", ".join(self._routes.brokers[b] for b in brokers if b not in self._listed)
            raise BrokerUnavailableError(f"no list of the topics of {missing}")
        topics = [topic for b in brokers for topic in self._book.all_of(b)]
        topics.sort(key=lambda topic: topic.topic)
        self._all = DescribeTopicsResp(self.cluster_id, topics, version)
        return self._all

    async def _describe_some(
        self, op: DescribeTopics, trace: TraceContext | None
    ) -> list[TopicDescription]:
        names, ids = op.topics or [], op.topic_ids or []
        ops = [self._part_of(op, b) for b in range(len(self._routes.brokers))]
        answers = await self._send(ops, trace)
        silent = {b for b, part in enumerate(ops) if part is not None and answers[b] is None}
        found = {
            topic.topic: topic
            for part, answer in zip(ops, answers, strict=True)
            if part is not None and answer is not None
            for topic in answer.topics[: len(part.topics or [])]  # names come before ids
        }
        return [
            *(self._named(name, found, silent) for name in names),
            *(self._with_id(topic_id, all_answered=not silent) for topic_id in ids),
        ]

    def _part_of(self, op: DescribeTopics, b: int) -> DescribeTopics | None:
        """The op for one broker; None: the broker need not answer."""
        names = [name for name in op.topics or [] if self._routes.broker_of(name) == b]
        ids = [i for i in op.topic_ids or [] if self._book.broker_of(i) in (None, b)]
        if not (names or ids or (b == self._routes.home and not self.cluster_id)):
            return None
        return DescribeTopics(names, ids, op.auto_create, create_at_most=op.create_at_most)

    def _named(
        self, name: str, found: dict[str, TopicDescription], silent: set[int]
    ) -> TopicDescription:
        b = self._routes.broker_of(name)
        if b not in silent and name in found:
            return found[name]
        last_seen = self._book.named(b, name)
        return last_seen or TopicDescription(name, b"", 0, ErrorCode.LEADER_NOT_AVAILABLE)

    def _with_id(self, topic_id: bytes, *, all_answered: bool) -> TopicDescription:
        missing = ErrorCode.UNKNOWN_TOPIC_ID if all_answered else ErrorCode.LEADER_NOT_AVAILABLE
        return self._book.by_id(topic_id) or TopicDescription("", topic_id, 0, missing)

    async def _send(
        self, ops: Sequence[DescribeTopics | None], trace: TraceContext | None
    ) -> list[DescribeTopicsResp | None]:
        """Send each broker its op, if it has one, and learn from the answers."""
        numbers = [b for b, op in enumerate(ops) if op is not None]
        calls = [self._describe(b, op, trace) for b, op in enumerate(ops) if op is not None]
        answers: list[DescribeTopicsResp | None] = [None] * len(ops)
        for b, answer in zip(numbers, await asyncio.gather(*calls), strict=True):
            answers[b] = answer
            if answer is not None:
                self._learn(b, answer)
        return answers

    def _learn(self, b: int, answer: DescribeTopicsResp) -> None:
        if b == self._routes.home and answer.cluster_id and not self._is_named:
            self.cluster_id = answer.cluster_id
        belongs = self._belongs(b)
        for topic in answer.topics:
            if topic.error_code in _DELETED and topic.topic:
                self._book.remove(b, topic.topic)
            elif topic.error_code in _DELETED:
                self._book.remove_id(b, topic.topic_id)
            elif belongs(topic):
                self._book.add(b, topic)

    def _belongs(self, b: int) -> Callable[[TopicDescription], bool]:
        def belongs(topic: TopicDescription) -> bool:
            return not topic.error_code and self._routes.broker_of(topic.topic) == b

        return belongs
