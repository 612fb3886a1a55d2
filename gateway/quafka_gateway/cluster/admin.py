"""Administrators' ops: partitions, configs, producers and log folders, at each topic's broker.

An unavailable broker is an error in the parts that concern it (REQUEST_TIMED_OUT, which clients
retry); the other parts do not wait for it. All of these ops are safe to retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.cluster import Cluster, RouteBy, Send
from quafka_mesh_ops.ops.admin import (
    AlterBrokerConfigs,
    AlterBrokerConfigsResp,
    AlterTopicConfigs,
    AlterTopicConfigsResp,
    ConfigDescription,
    CreatePartitions,
    CreatePartitionsResp,
    DescribeCompaction,
    DescribeCompactionResp,
    DescribeLogDir,
    DescribeLogDirResp,
    DescribeTopicConfigs,
    NamedValue,
    PartitionsByTopic,
    TopicConfigs,
)
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.group_configs import (
    AlterGroupConfigs,
    AlterGroupConfigsResp,
    DescribeGroupConfigs,
)
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_PER_OP = 500
"""Topics or partitions in one op: clients may name any number in one request."""

_MOST_PARTITIONS = 100_000  # of a topic

K = TypeVar("K")


class DescribedTopic(NamedTuple):
    """A topic's configs, and the defaults at its broker."""

    configs: TopicConfigs
    defaults: list[ConfigDescription]


class GroupConfigs(NamedTuple):
    """The configs that a group sets, and the defaults."""

    own: list[NamedValue]
    defaults: list[ConfigDescription]


class LogDir(NamedTuple):
    """The log folder of one broker, under a name that is unique in the cluster."""

    name: str
    found: DescribeLogDirResp


class Admin:
    """One method per op that concerns several brokers, or whose errors are in its answer.

    Answers about topics and partitions are in the order of the request.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def call_home(self, op: Op[R], trace: TraceContext | None) -> Awaitable[R]:
        """Send an op to the home broker. Raises BrokerUnavailableError."""
        return self._cluster.administer(self._cluster.home, op, trace)

    def call_topic(self, topic: str, op: Op[R], trace: TraceContext | None) -> Awaitable[R]:
        """Send an op to the topic's broker. Raises BrokerUnavailableError."""
        return self._cluster.administer(self._cluster.link_of(topic), op, trace)

    # --- topics -----------------------------------------------------------------------------

    async def create_partitions(
        self, op: CreatePartitions, trace: TraceContext | None
    ) -> CreatePartitionsResp:
        """Add partitions to one topic, durably."""
        try:
            answer = await self.call_topic(op.topic, op, trace)
        except BrokerUnavailableError as e:
            return CreatePartitionsResp(e.code, str(e))
        if not answer.error_code and not op.validate_only:
            self._cluster.catalog.extend(op.topic, op.count)
        return answer

    async def alter_topic_configs(
        self, op: AlterTopicConfigs, trace: TraceContext | None
    ) -> AlterTopicConfigsResp:
        """Change one topic's configs, durably."""
        try:
            return await self.call_topic(op.topic, op, trace)
        except BrokerUnavailableError as e:
            return AlterTopicConfigsResp(e.code, str(e))

    async def describe_topic_configs(
        self, topics: list[str], trace: TraceContext | None
    ) -> list[DescribedTopic]:
        """The configs of each of these topics."""

        async def call(send: Send, its: list[str]) -> list[DescribedTopic]:
            answer = await send(DescribeTopicConfigs(its))
            return [DescribedTopic(topic, answer.defaults) for topic in answer.topics]

        def failed(_topic: str, code: int, text: str) -> DescribedTopic:
            return DescribedTopic(TopicConfigs(code, text), [])

        return await self._cluster.ask(RouteBy.TOPIC, topics, call, failed, trace)

    async def describe_compaction(
        self, topic: str, trace: TraceContext | None
    ) -> DescribeCompactionResp:
        """The compaction of a topic's partitions."""
        try:
            return await self.call_topic(topic, DescribeCompaction(topic), trace)
        except BrokerUnavailableError as e:
            return DescribeCompactionResp([], e.code)

    # --- groups -----------------------------------------------------------------------------

    async def describe_group_configs(
        self, groups: list[str], trace: TraceContext | None
    ) -> list[GroupConfigs]:
        """The configs of each of these groups.

        Raises:
            BrokerUnavailableError: the broker of one of the groups does not answer.
        """

        async def call(send: Send, its: list[str]) -> list[GroupConfigs]:
            answer = await send(DescribeGroupConfigs(its))
            return [GroupConfigs(each.own, answer.defaults) for each in answer.groups]

        def failed(_group: str, code: int, text: str) -> GroupConfigs:
            raise BrokerUnavailableError(text, code)

        return await self._cluster.ask(RouteBy.GROUP_CONFIGS, groups, call, failed, trace)

    async def alter_group_configs(
        self, op: AlterGroupConfigs, trace: TraceContext | None
    ) -> AlterGroupConfigsResp:
        """Change one group's configs, durably."""
        try:
            return await self._cluster.administer(self._cluster.link_of_group(op.group), op, trace)
        except BrokerUnavailableError as e:
            return AlterGroupConfigsResp(e.code, str(e))

    # --- brokers ----------------------------------------------------------------------------

    async def alter_broker_configs(
        self, op: AlterBrokerConfigs, trace: TraceContext | None
    ) -> AlterBrokerConfigsResp:
        """Change the configs of every broker: clients see one. Returns the first error, if any."""

        async def alter(link: BrokerLink) -> AlterBrokerConfigsResp:
            try:
                return await self._cluster.administer(link, op, trace)
            except BrokerUnavailableError as e:
                return AlterBrokerConfigsResp(e.code, str(e))

        answers = await asyncio.gather(*map(alter, self._cluster.links))
        return next((answer for answer in answers if answer.error_code), answers[0])

    async def log_dirs(
        self, topics: Sequence[PartitionsByTopic] | None, trace: TraceContext | None
    ) -> list[LogDir]:
        """The bytes of these partitions, or of all, at each broker. `topics` has no duplicates."""
        brokers = range(len(self._cluster.links))
        return await asyncio.gather(*(self._log_dir(b, topics, trace) for b in brokers))

    async def _log_dir(
        self, broker: int, topics: Sequence[PartitionsByTopic] | None, trace: TraceContext | None
    ) -> LogDir:
        routes, link = self._cluster.routes, self._cluster.links[broker]
        its = None
        if topics is not None:
            its = [each for each in topics if routes.broker_of(each.topic) == broker]
        prefix = f"{routes.brokers[broker]}:" if self._cluster.only is None else ""
        found: DescribeLogDirResp | None = None
        for some in [its] if its is None else _slices(its) or [[]]:
            try:
                part = await self._cluster.administer(link, DescribeLogDir(some), trace)
            except BrokerUnavailableError:
                failed = DescribeLogDirResp("", -1, -1, [], ErrorCode.KAFKA_STORAGE_ERROR)
                return LogDir(prefix, failed)
            found = replace(part, topics=[*(found.topics if found else []), *part.topics])
        assert found is not None
        # A topic that stayed at its old broker when a route changed is not served.
        served = [each for each in found.topics if routes.broker_of(each.topic) == broker]
        return LogDir(prefix + found.path, replace(found, topics=served))


def partitions_of(
    named: Iterable[tuple[str, list[int]]],
) -> Generator[None, None, list[PartitionsByTopic]]:
    """Each topic, and each partition that a topic can have, once: for `in_slices`."""
    topics: dict[str, dict[int, None]] = {}
    for topic, partitions in named:
        its = topics.setdefault(topic, {})
        yield
        for partition in partitions:
            if 0 <= partition < _MOST_PARTITIONS:
                its[partition] = None
            yield
    return [PartitionsByTopic(topic, list(partitions)) for topic, partitions in topics.items()]


def _slices(items: list[K]) -> list[list[K]]:
    return [items[at : at + _PER_OP] for at in range(0, len(items), _PER_OP)]
