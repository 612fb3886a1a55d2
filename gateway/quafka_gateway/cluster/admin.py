"""Administrators' ops: partitions, configs, producers and log folders, at each topic's broker.

An unavailable broker is an error in the parts that concern it (REQUEST_TIMED_OUT, which clients
retry); the other parts do not wait for it. All of these ops are safe to retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from quafka_gateway.cluster.broker_link import (
    RETURN_SECONDS,
    SMALL_OP_SECONDS,
    BrokerLink,
    UnavailableError,
)
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.spread import grouped, spread
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
    DescribeProducersOps,
    DescribeTopicConfigs,
    NamedValue,
    PartitionOp,
    PartitionProducers,
    TopicConfigs,
    TopicPartitions,
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


class DescribedGroup(NamedTuple):
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
        """Send an op to the home broker. Raises UnavailableError."""
        return self._call(self._cluster.home, op, trace)

    def call_topic(self, topic: str, op: Op[R], trace: TraceContext | None) -> Awaitable[R]:
        """Send an op to the topic's broker. Raises UnavailableError."""
        return self._call(self._cluster.link_of(topic), op, trace)

    # --- topics -----------------------------------------------------------------------------

    async def create_partitions(
        self, op: CreatePartitions, trace: TraceContext | None
    ) -> CreatePartitionsResp:
        """Add partitions to one topic, durably."""
        try:
            answer = await self.call_topic(op.topic, op, trace)
        except UnavailableError as e:
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
        except UnavailableError as e:
            return AlterTopicConfigsResp(e.code, str(e))

    async def describe_topic_configs(
        self, topics: Sequence[str], trace: TraceContext | None
    ) -> list[DescribedTopic]:
        """The configs of each of these topics."""

        async def call(link: BrokerLink, its: list[str]) -> list[DescribedTopic]:
            found: list[DescribedTopic] = []
            defaults: list[ConfigDescription] = []
            for some in _slices(its):
                try:
                    answer = await self._call(link, DescribeTopicConfigs(some), trace)
                except UnavailableError as e:
                    failed = DescribedTopic(TopicConfigs(e.code, str(e)), [])
                    return found + [failed] * (len(its) - len(found))
                defaults = defaults or answer.defaults  # equal in all answers of a broker
                found += [DescribedTopic(topic, defaults) for topic in answer.topics]
            return found

        return await self._cluster.spread_by_topic(topics, lambda topic: topic, call)

    async def describe_producers(
        self, partitions: Sequence[PartitionOp], trace: TraceContext | None
    ) -> list[PartitionProducers]:
        """The producers of each of these partitions."""

        async def call(link: BrokerLink, its: list[PartitionOp]) -> list[PartitionProducers]:
            found: list[PartitionProducers] = []
            for some in _slices(its):
                try:
                    answer = await self._call(link, DescribeProducersOps(some), trace)
                except UnavailableError as e:
                    return found + [PartitionProducers([], e.code)] * (len(its) - len(found))
                found += answer.partitions
            return found

        return await self._cluster.spread_by_topic(partitions, lambda part: part.topic, call)

    async def describe_compaction(
        self, topic: str, trace: TraceContext | None
    ) -> DescribeCompactionResp:
        """The compaction of a topic's partitions."""
        try:
            return await self.call_topic(topic, DescribeCompaction(topic), trace)
        except UnavailableError as e:
            return DescribeCompactionResp([], e.code)

    # --- groups -----------------------------------------------------------------------------

    async def describe_group_configs(
        self, groups: Sequence[str], trace: TraceContext | None
    ) -> list[DescribedGroup]:
        """The configs of each of these groups.

        Raises:
            UnavailableError: the broker of one of the groups does not answer.
        """
        found: list[DescribedGroup] = []
        for some in _slices(list(groups)):
            found += await self._describe_group_configs(some, trace)
        return found

    async def _describe_group_configs(
        self, groups: list[str], trace: TraceContext | None
    ) -> list[DescribedGroup]:
        async def call(broker: int, its: list[int]) -> list[DescribedGroup]:
            op = DescribeGroupConfigs([groups[place] for place in its])
            answer = await self._call(self._cluster.links[broker], op, trace)
            return [DescribedGroup(each.own, answer.defaults) for each in answer.groups]

        coordinators = map(self._cluster.routes.coordinator_of_group, groups)
        return await spread(grouped(coordinators), call)

    async def alter_group_configs(
        self, op: AlterGroupConfigs, trace: TraceContext | None
    ) -> AlterGroupConfigsResp:
        """Change one group's configs, durably."""
        try:
            return await self._call(self._cluster.link_of_group(op.group), op, trace)
        except UnavailableError as e:
            return AlterGroupConfigsResp(e.code, str(e))

    # --- brokers ----------------------------------------------------------------------------

    async def alter_broker_configs(
        self, op: AlterBrokerConfigs, trace: TraceContext | None
    ) -> AlterBrokerConfigsResp:
        """Change the configs of every broker: clients see one. Returns the first error, if any."""

        async def alter(link: BrokerLink) -> AlterBrokerConfigsResp:
            try:
                return await self._call(link, op, trace)
            except UnavailableError as e:
                return AlterBrokerConfigsResp(e.code, str(e))

        answers = await asyncio.gather(*map(alter, self._cluster.links))
        return next((answer for answer in answers if answer.error_code), answers[0])

    async def log_dirs(
        self, topics: Sequence[TopicPartitions] | None, trace: TraceContext | None
    ) -> list[LogDir]:
        """The bytes of these partitions, or of all, at each broker. `topics` has no duplicates."""
        brokers = range(len(self._cluster.links))
        return await asyncio.gather(*(self._log_dir(b, topics, trace) for b in brokers))

    async def _log_dir(
        self, broker: int, topics: Sequence[TopicPartitions] | None, trace: TraceContext | None
    ) -> LogDir:
        routes, link = self._cluster.routes, self._cluster.links[broker]
        its = None
        if topics is not None:
            its = [each for each in topics if routes.broker_of(each.topic) == broker]
        prefix = f"{routes.brokers[broker]}:" if self._cluster.only is None else ""
        found: DescribeLogDirResp | None = None
        for some in [its] if its is None else _slices(its) or [[]]:
            try:
                part = await self._call(link, DescribeLogDir(some), trace)
            except UnavailableError:
                failed = DescribeLogDirResp("", -1, -1, [], ErrorCode.KAFKA_STORAGE_ERROR)
                return LogDir(prefix, failed)
            found = replace(part, topics=[*(found.topics if found else []), *part.topics])
        assert found is not None
        # A topic that stayed at its old broker when a route changed is not served.
        served = [each for each in found.topics if routes.broker_of(each.topic) == broker]
        return LogDir(prefix + found.path, replace(found, topics=served))

    async def _call(self, link: BrokerLink, op: Op[R], trace: TraceContext | None) -> R:
        seconds = SMALL_OP_SECONDS
        if not link.connected:
            alone = self._cluster.only is not None
            seconds = link.wait_once(SMALL_OP_SECONDS if alone else RETURN_SECONDS)
        try:
            return await link.call(op, trace, seconds)
        except UnavailableError as e:
            if not e.unanswered:
                raise
            raise UnavailableError(f"no answer: {e}", ErrorCode.REQUEST_TIMED_OUT) from e


def partitions_of(
    named: Iterable[tuple[str, list[int]]],
) -> Generator[None, None, list[TopicPartitions]]:
    """Each topic, and each partition that a topic can have, once: for `in_slices`."""
    topics: dict[str, dict[int, None]] = {}
    for topic, partitions in named:
        its = topics.setdefault(topic, {})
        yield
        for partition in partitions:
            if 0 <= partition < _MOST_PARTITIONS:
                its[partition] = None
            yield
    return [TopicPartitions(topic, list(partitions)) for topic, partitions in topics.items()]


def _slices(items: list[K]) -> list[list[K]]:
    return [items[at : at + _PER_OP] for at in range(0, len(items), _PER_OP)]
