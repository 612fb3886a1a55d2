"""The brokers of one org as one cluster, by its route table. One broker is a table of one rule.

An op that names partitions of several brokers is split, and the answers come back in its order.
While other brokers can answer, no op waits for an unavailable one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from quafka_gateway.cluster.broker_link import SMALL_OP_SECONDS, BrokerLink, UnavailableError
from quafka_gateway.cluster.catalog import UNKNOWN_BROKER, Catalog
from quafka_gateway.cluster.routes import OrgRoutes
from quafka_gateway.cluster.spread import grouped, spread
from quafka_mesh_ops.ops.offsets import EpochEndOps, ListOffsetsOps
from quafka_mesh_ops.ops.records import DeleteRecordsOps, FetchOps, ProduceOps
from quafka_mesh_ops.ops.shares import AcknowledgeRecords, AcquireRecords
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.shards import Hashed
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

PartitionsOp = TypeVar(
    "PartitionsOp",
    ProduceOps,
    FetchOps,
    ListOffsetsOps,
    EpochEndOps,
    DeleteRecordsOps,
    AcquireRecords,
    AcknowledgeRecords,
)
K = TypeVar("K")
T = TypeVar("T")


class Cluster:
    """The links to an org's brokers, and which broker serves which topic.

    Attributes:
        links: one link for each of `routes.brokers`.
        home: the link to the home broker.
        only: the link, if the table has one broker: then no op needs a route.
        catalog: the topics of all brokers. A table of one broker needs none.
    """

    def __init__(
        self, links: Sequence[BrokerLink], routes: OrgRoutes, cluster_id: str = ""
    ) -> None:
        """`cluster_id`: that of a cluster of shards; without one the home broker's counts."""
        self.links = links
        self.routes = routes
        self.home = links[routes.home]
        self.only = links[0] if len(links) == 1 else None
        self.catalog = Catalog(routes, self._describe, cluster_id)

    @property
    def cluster_id(self) -> str:
        """The id that clients see; empty until the home broker has said it."""
        return self.catalog.cluster_id or self.home.cluster_id

    def link_of(self, topic: str) -> BrokerLink:
        """The link to the broker that serves the topic with this name."""
        return self.links[self.routes.broker_of(topic)]

    def link_of_group(self, group: str) -> BrokerLink:
        """The link to the broker that coordinates the group with this name."""
        return self.links[self.routes.coordinator_of_group(group)]

    def link_of_transaction(self, transactional_id: str) -> BrokerLink:
        """The link to the broker that coordinates the transactions of this id."""
        return self.links[self.routes.coordinator_of_transaction(transactional_id)]

    def coordinators(self, what: Hashed) -> list[BrokerLink]:
        """The links to all brokers that may coordinate groups, or transactions."""
        return [self.links[number] for number in self.routes.coordinators(what)]

    def is_connected(self, broker: int) -> bool:
        """Whether ops reach the broker with this number, or its shard is moving right now.

        UNKNOWN_BROKER is never connected.
        """
        return broker != UNKNOWN_BROKER and self.links[broker].usable

    async def places(self, op: PartitionsOp, trace: TraceContext | None) -> dict[int, list[int]]:
        """The places of the op's partitions by broker number; UNKNOWN_BROKER is one."""
        topics = [(part.topic, getattr(part, "topic_id", b"")) for part in op.partitions]
        return grouped(await self.catalog.brokers_of(topics, trace))

    async def spread_partitions(
        self,
        op: PartitionsOp,
        call: Callable[[BrokerLink, PartitionsOp], Awaitable[list[T]]],
        failed: Callable[[int], T],
        trace: TraceContext | None,
    ) -> list[T]:
        """Call each broker with its partitions; `failed` makes an answer from an error code."""
        places = await self.places(op, trace)

        async def answers(broker: int, its: list[int]) -> list[T]:
            alone = len(places) == 1 and broker != UNKNOWN_BROKER
            if alone or self.is_connected(broker):
                return await call(self.links[broker], part_of(op, its))
            return [failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * len(its)

        return await spread(places, answers)

    async def spread_by_topic(
        self,
        items: Sequence[K],
        topic_of: Callable[[K], str],
        call: Callable[[BrokerLink, list[K]], Awaitable[list[T]]],
    ) -> list[T]:
        """Call each broker with the items of its topics; the answers in the order of the items."""

        async def answers(broker: int, its: list[int]) -> list[T]:
            return await call(self.links[broker], [items[place] for place in its])

        return await spread(
            grouped(self.routes.broker_of(topic_of(item)) for item in items), answers
        )

    async def _describe(
        self, broker: int, op: DescribeTopics, trace: TraceContext | None
    ) -> DescribeTopicsResp | None:
        link = self.links[broker]
        try:
            return await link.describe_topics(op, trace, link.wait_among_others(SMALL_OP_SECONDS))
        except UnavailableError:
            return None


def part_of(op: PartitionsOp, places: list[int]) -> PartitionsOp:
    """The op with the partitions at these places alone."""
    if len(places) == len(op.partitions):
        return op
    return replace(op, partitions=[op.partitions[place] for place in places])
