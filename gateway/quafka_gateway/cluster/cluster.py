"""The brokers of one org as one cluster, by its route table. One broker is a table of one rule.

What names items of several brokers is split, and the answers come back in its order. While other
brokers can answer, no op on records waits for an unavailable one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Protocol, TypeVar

from quafka_gateway.cluster.broker_link import (
    RETURN_SECONDS,
    SMALL_OP_SECONDS,
    BrokerLink,
    BrokerUnavailableError,
    coordinator_code,
)
from quafka_gateway.cluster.catalog import UNKNOWN_BROKER, Catalog
from quafka_gateway.cluster.routes import OrgRoutes
from quafka_gateway.cluster.spread import grouped, spread
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.records import FetchOps, ProduceOps
from quafka_mesh_ops.ops.shares import AcknowledgeRecords, AcquireRecords
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.shards import Hashed
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

PartitionsOp = TypeVar("PartitionsOp", ProduceOps, FetchOps, AcquireRecords, AcknowledgeRecords)
T = TypeVar("T")

_PER_OP = 500
"""Items in one op to a coordinator or an administered broker: clients may name any number."""


class OfTopic(Protocol):
    """An item that names its topic."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...


Item = TypeVar("Item", bound=str | OfTopic)
"""What a request names many of: a group, a transactional id, or a part of a topic."""


def name_of(item: str | OfTopic) -> str:
    """The name that decides which broker has an item, and who may use it."""
    return item if isinstance(item, str) else item.topic


class Send(Protocol):
    """Sends an op to one broker. Raises BrokerUnavailableError."""

    def __call__(self, op: Op[R], /) -> Awaitable[R]:
        """Return the broker's answer."""
        ...


class RouteBy(Enum):
    """What an item's name is of; that decides its broker, and the error if there is no answer.

    PARTITION, SHARE and TOPIC are all by the topic. An op on partitions has any number of them, and
    does not wait for a disconnected broker while others can answer (NOT_LEADER_OR_FOLLOWER); an op
    on a share group's offsets waits for none of several brokers. An op of an administrator, on
    topics or on configs of groups, waits, once in a series (REQUEST_TIMED_OUT).
    """

    PARTITION = Hashed.TOPIC, ErrorCode.NOT_LEADER_OR_FOLLOWER
    SHARE = Hashed.TOPIC, ErrorCode.NOT_LEADER_OR_FOLLOWER, "SHARE"  # no alias of PARTITION
    TOPIC = Hashed.TOPIC, ErrorCode.REQUEST_TIMED_OUT
    GROUP = Hashed.GROUP, ErrorCode.NOT_COORDINATOR
    GROUP_CONFIGS = Hashed.GROUP, ErrorCode.REQUEST_TIMED_OUT
    TRANSACTION = Hashed.TRANSACTION, ErrorCode.NOT_COORDINATOR

    def code(self, error: BrokerUnavailableError) -> int:
        """The error code of an item whose broker gave no answer."""
        unanswered = self.value[1]
        if unanswered == ErrorCode.NOT_COORDINATOR:
            return coordinator_code(error)
        return error.code_or(unanswered)


_BY_PARTITION = (RouteBy.PARTITION, RouteBy.SHARE)


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
        items: Sequence[Item],
        call: Callable[[BrokerLink, list[Item]], Awaitable[list[T]]],
    ) -> list[T]:
        """Call each broker with the items of its topics; the answers in the order of the items."""

        async def answers(broker: int, its: list[int]) -> list[T]:
            return await call(self.links[broker], [items[place] for place in its])

        return await spread(grouped(self.routes.broker_of(name_of(i)) for i in items), answers)

    async def ask(
        self,
        route: RouteBy,
        items: list[Item],
        call: Callable[[Send, list[Item]], Awaitable[list[T]]],
        failed: Callable[[Item, int, str], T],
        trace: TraceContext | None,
    ) -> list[T]:
        """Ask the broker of each item, all brokers at once; the answers in the order of the items.

        `call` sends one broker some of its items, and returns one answer for each. If it raises
        BrokerUnavailableError, `failed` makes the answers about these items and the broker's
        remaining ones, from the item, the error code and the error's text.
        """
        if self.only is not None:
            return await self._ask_one(route, 0, items, call, failed, trace)
        broker_of = self.routes.number_of
        places = grouped(await listed(broker_of(route.value[0], name_of(item)) for item in items))
        is_waited_for = route not in _BY_PARTITION or (
            route is RouteBy.PARTITION and len(places) == 1
        )

        async def answers(broker: int, its: list[int]) -> list[T]:
            some = [items[place] for place in its]
            if is_waited_for or self.is_connected(broker):
                return await self._ask_one(route, broker, some, call, failed, trace)
            return [failed(item, ErrorCode.NOT_LEADER_OR_FOLLOWER, "") for item in some]

        return await spread(places, answers)

    async def _ask_one(
        self,
        route: RouteBy,
        broker: int,
        items: list[Item],
        call: Callable[[Send, list[Item]], Awaitable[list[T]]],
        failed: Callable[[Item, int, str], T],
        trace: TraceContext | None,
    ) -> list[T]:
        link = self.links[broker]

        def send(op: Op[R], /) -> Awaitable[R]:
            if route in (RouteBy.TOPIC, RouteBy.GROUP_CONFIGS):
                return self.administer(link, op, trace)
            return link.call(op, trace)

        per_op = max(1, len(items)) if route in _BY_PARTITION else _PER_OP
        found: list[T] = []
        try:
            for at in range(0, len(items), per_op):
                found += await call(send, items[at : at + per_op])
        except BrokerUnavailableError as e:
            code, text = route.code(e), str(e)
            found += await listed(failed(item, code, text) for item in items[len(found) :])
        return found

    async def administer(self, link: BrokerLink, op: Op[R], trace: TraceContext | None) -> R:
        """Send an administrator's op, and wait for a disconnected broker once in a series of ops.

        Raises:
            BrokerUnavailableError: with REQUEST_TIMED_OUT if the broker does not answer.
        """
        seconds = SMALL_OP_SECONDS
        if not link.connected:
            alone = self.only is not None
            seconds = link.wait_once(SMALL_OP_SECONDS if alone else RETURN_SECONDS)
        try:
            return await link.call(op, trace, seconds)
        except BrokerUnavailableError as e:
            if not e.unanswered:
                raise
            raise BrokerUnavailableError(f"no answer: {e}", ErrorCode.REQUEST_TIMED_OUT) from e

    async def _describe(
        self, broker: int, op: DescribeTopics, trace: TraceContext | None
    ) -> DescribeTopicsResp | None:
        link = self.links[broker]
        try:
            return await link.describe_topics(op, trace, link.wait_among_others(SMALL_OP_SECONDS))
        except BrokerUnavailableError:
            return None


def part_of(op: PartitionsOp, places: list[int]) -> PartitionsOp:
    """The op with the partitions at these places alone."""
    if len(places) == len(op.partitions):
        return op
    return replace(op, partitions=[op.partitions[place] for place in places])
