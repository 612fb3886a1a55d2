"""What administrators ask of brokers, and do: every call goes to the topic's broker.

A broker that is away is an error in what concerns it (REQUEST_TIMED_OUT, which clients retry),
and nobody else waits for it. All of these ops may be said twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from quafka_gateway.cluster.broker_link import (
    RETURN_SECONDS,
    SMALL_OP_SECONDS,
    BrokerLink,
    UnavailableError,
)
from quafka_gateway.cluster.routes import OrgRoutes
from quafka_gateway.cluster.spread import grouped, spread
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.admin import (
    AlterBrokerConfigs,
    AlterBrokerConfigsResp,
    AlterTopicConfigs,
    AlterTopicConfigsResp,
    ConfigDescription,
    CreatePartitions,
    CreatePartitionsResp,
    DescribeBroker,
    DescribeBrokerResp,
    DescribeLogDir,
    DescribeLogDirResp,
    DescribeProducersOps,
    DescribeTopicConfigs,
    PartitionOp,
    PartitionProducers,
    TopicConfigs,
    TopicPartitions,
)
from quafka_mesh_ops.ops.base import Op, R
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_AT_ONCE = 500
"""Topics or partitions an op: clients may name any number in one request."""

_MOST_PARTITIONS = 100_000  # of a topic

K = TypeVar("K")
T = TypeVar("T")


class DescribedTopic(NamedTuple):
    """A topic's configs, and those that a topic has at its broker that sets none."""

    configs: TopicConfigs
    defaults: list[ConfigDescription]


class LogDir(NamedTuple):
    """The log's folder at one broker, under a name that no other broker's has."""

    name: str
    found: DescribeLogDirResp


class Admin:
    """The brokers of one org, as administrators see them."""

    def __init__(self, links: Sequence[BrokerLink], routes: OrgRoutes) -> None:
        """One link for each of `routes.brokers`."""
        self.links = links
        self._routes = routes

    # --- topics -----------------------------------------------------------------------------

    async def create_partitions(
        self, op: CreatePartitions, trace: TraceContext | None
    ) -> CreatePartitionsResp:
        """Let one topic grow, durably."""
        try:
            answer = await self._ask(self._routes.broker_of(op.topic), op, trace)
        except UnavailableError as e:
            return CreatePartitionsResp(e.code, str(e))
        return answer

    async def alter_topic_configs(
        self, op: AlterTopicConfigs, trace: TraceContext | None
    ) -> AlterTopicConfigsResp:
        """Change one topic's configs, durably."""
        try:
            answer = await self._ask(self._routes.broker_of(op.topic), op, trace)
        except UnavailableError as e:
            return AlterTopicConfigsResp(e.code, str(e))
        return answer

    async def describe_topic_configs(
        self, topics: Sequence[str], trace: TraceContext | None
    ) -> list[DescribedTopic]:
        """The configs of each of these topics."""

        async def ask(broker: int, its: list[str]) -> list[DescribedTopic]:
            found: list[DescribedTopic] = []
            defaults: list[ConfigDescription] = []
            for some in _slices(its):
                try:
                    answer = await self._ask(broker, DescribeTopicConfigs(some), trace)
                except UnavailableError as e:
                    failed = DescribedTopic(TopicConfigs(e.code, str(e)), [])
                    return found + [failed] * (len(its) - len(found))
                defaults = defaults or answer.defaults  # a broker's are always the same
                found += [DescribedTopic(topic, defaults) for topic in answer.topics]
            return found

        return await self._spread(topics, lambda topic: topic, ask)

    async def describe_producers(
        self, partitions: Sequence[PartitionOp], trace: TraceContext | None
    ) -> list[PartitionProducers]:
        """The producers of each of these partitions."""

        async def ask(broker: int, its: list[PartitionOp]) -> list[PartitionProducers]:
            found: list[PartitionProducers] = []
            for some in _slices(its):
                try:
                    answer = await self._ask(broker, DescribeProducersOps(some), trace)
                except UnavailableError as e:
                    return found + [PartitionProducers([], e.code)] * (len(its) - len(found))
                found += answer.partitions
            return found

        return await self._spread(partitions, lambda part: part.topic, ask)

    # --- brokers ----------------------------------------------------------------------------

    async def describe_broker(self, trace: TraceContext | None) -> DescribeBrokerResp:
        """The home broker. Raises UnavailableError."""
        return await self._ask(self._routes.home, DescribeBroker(), trace)

    async def alter_broker_configs(
        self, op: AlterBrokerConfigs, trace: TraceContext | None
    ) -> AlterBrokerConfigsResp:
        """Change the configs of every broker; clients see them as one. The first error counts."""

        async def alter(broker: int) -> AlterBrokerConfigsResp:
            try:
                return await self._ask(broker, op, trace)
            except UnavailableError as e:
                return AlterBrokerConfigsResp(e.code, str(e))

        answers = await asyncio.gather(*map(alter, range(len(self.links))))
        return next((answer for answer in answers if answer.error_code), answers[0])

    async def log_dirs(
        self, topics: Sequence[TopicPartitions] | None, trace: TraceContext | None
    ) -> list[LogDir]:
        """What these partitions, or all, take at each broker. No topic is to be named twice."""
        brokers = range(len(self.links))
        return await asyncio.gather(*(self._log_dir(b, topics, trace) for b in brokers))

    async def _log_dir(
        self, broker: int, topics: Sequence[TopicPartitions] | None, trace: TraceContext | None
    ) -> LogDir:
        its = None
        if topics is not None:
            its = [each for each in topics if self._routes.broker_of(each.topic) == broker]
        prefix = f"{self._routes.brokers[broker]}:" if len(self.links) > 1 else ""
        found: DescribeLogDirResp | None = None
        for some in [its] if its is None else _slices(its) or [[]]:
            try:
                part = await self._ask(broker, DescribeLogDir(some), trace)
            except UnavailableError:
                away = DescribeLogDirResp("", -1, -1, [], ErrorCode.KAFKA_STORAGE_ERROR)
                return LogDir(prefix, away)
            found = replace(part, topics=[*(found.topics if found else []), *part.topics])
        assert found is not None
        # What was left behind when a route changed is not served.
        served = [each for each in found.topics if self._routes.broker_of(each.topic) == broker]
        return LogDir(prefix + found.path, replace(found, topics=served))

    # --- which broker -----------------------------------------------------------------------

    async def _spread(
        self,
        items: Sequence[K],
        topic_of: Callable[[K], str],
        ask: Callable[[int, list[K]], Awaitable[list[T]]],
    ) -> list[T]:
        """Ask each broker for those that are its; the answers in the order of the items."""

        async def ask_about(broker: int, its: list[int]) -> list[T]:
            return await ask(broker, [items[place] for place in its])

        brokers = (self._routes.broker_of(topic_of(item)) for item in items)
        return await spread(grouped(brokers), ask_about)

    async def _ask(self, broker: int, op: Op[R], trace: TraceContext | None) -> R:
        link = self.links[broker]
        seconds = SMALL_OP_SECONDS
        if not link.connected:
            alone = len(self.links) == 1
            seconds = link.patience(SMALL_OP_SECONDS if alone else RETURN_SECONDS)
        try:
            return await link.ask(op, trace, seconds)
        except UnavailableError as e:
            raise UnavailableError(f"no answer: {e}", ErrorCode.REQUEST_TIMED_OUT) from e
        except OpFailedError as e:
            raise UnavailableError(ErrorCode.name_of(e.error_code), e.error_code) from e


def partitions_of(named: Iterable[tuple[str, list[int]]]) -> list[TopicPartitions]:
    """Each topic, and each partition that a topic can have, once."""
    topics: dict[str, dict[int, None]] = {}
    for topic, partitions in named:
        its = topics.setdefault(topic, {})
        its.update((p, None) for p in partitions if 0 <= p < _MOST_PARTITIONS)
    return [TopicPartitions(topic, list(partitions)) for topic, partitions in topics.items()]


def _slices(items: list[K]) -> list[list[K]]:
    return [items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE)]
