"""Several brokers as one, by the route table: what handlers see of them, and how ops are split.

Each broker is a `BrokerLink` of its own. A call that carries many partitions is split, and answered
in its order; where others are asked, too, a broker that is away is not waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from quafka_gateway.cluster.broker_link import (
    RETURN_SECONDS,
    SMALL_OP_SECONDS,
    BrokerLink,
    UnavailableError,
)
from quafka_gateway.cluster.catalog import AWAY, Catalog
from quafka_gateway.cluster.routes import OrgRoutes
from quafka_gateway.cluster.spread import grouped, spread
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.group_offsets import ForgetTopic
from quafka_mesh_ops.ops.lag import LagOfOffsets, PartitionLag
from quafka_mesh_ops.ops.offsets import (
    EpochEnd,
    EpochEndOpResp,
    EpochEndOps,
    ListOffsetsOpResp,
    ListOffsetsOps,
)
from quafka_mesh_ops.ops.records import (
    DeleteRecordsOpResp,
    DeleteRecordsOps,
    FetchOps,
    InitProducerId,
    InitProducerIdResp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import (
    CreateTopic,
    CreateTopicResp,
    DeleteTopic,
    DeleteTopicResp,
    DescribeTopics,
    DescribeTopicsResp,
    TopicDescription,
)
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

ManyOp = TypeVar("ManyOp", ProduceOps, FetchOps, ListOffsetsOps, EpochEndOps, DeleteRecordsOps)
R = TypeVar("R")


class Brokers:
    """The brokers of one org: the same methods as `BrokerLink`, with the same promises.

    A broker that is away, or an answer that never came, is a retriable Kafka error in every
    partition of that broker; the others' do not wait for it.
    """

    def __init__(self, links: Sequence[BrokerLink], routes: OrgRoutes) -> None:
        """One link for each of `routes.brokers`."""
        self._links = links
        self._routes = routes
        self._catalog = Catalog(routes, self._describe)

    # --- many partitions --------------------------------------------------------------------

    async def produce(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None
    ) -> list[ProduceOpResp]:
        """Append. Ops on one `lane` reach each broker's log in the order of the calls."""

        async def ask(broker: int, part: ProduceOps) -> list[ProduceOpResp]:
            return await self._links[broker].produce(part, lane, timeout, trace)

        def failed(code: int) -> ProduceOpResp:
            return ProduceOpResp(base_offset=-1, error_code=code, log_start_offset=-1)

        return await self._spread(op, ask, failed, trace)

    async def list_offsets(
        self, op: ListOffsetsOps, trace: TraceContext | None
    ) -> list[ListOffsetsOpResp]:
        """Resolve earliest, latest and timestamps to offsets."""

        async def ask(broker: int, part: ListOffsetsOps) -> list[ListOffsetsOpResp]:
            return await self._links[broker].list_offsets(part, trace)

        def failed(code: int) -> ListOffsetsOpResp:
            return ListOffsetsOpResp(-1, error_code=code)

        return await self._spread(op, ask, failed, trace)

    async def epoch_ends(self, op: EpochEndOps, trace: TraceContext | None) -> list[EpochEndOpResp]:
        """Where leader epochs end."""

        async def ask(broker: int, part: EpochEndOps) -> list[EpochEndOpResp]:
            return await self._links[broker].epoch_ends(part, trace)

        def failed(code: int) -> EpochEndOpResp:
            return EpochEndOpResp(EpochEnd(-1, -1), code)

        return await self._spread(op, ask, failed, trace)

    async def delete_records(
        self, op: DeleteRecordsOps, trace: TraceContext | None
    ) -> list[DeleteRecordsOpResp]:
        """Move log starts, durably."""

        async def ask(broker: int, part: DeleteRecordsOps) -> list[DeleteRecordsOpResp]:
            return await self._links[broker].delete_records(part, trace)

        def failed(code: int) -> DeleteRecordsOpResp:
            return DeleteRecordsOpResp(-1, code)

        return await self._spread(op, ask, failed, trace)

    # --- topics and producers ---------------------------------------------------------------

    async def describe_topics(
        self, op: DescribeTopics, trace: TraceContext | None
    ) -> DescribeTopicsResp:
        """Topics of all brokers as one list (`catalog.py`)."""
        return await self._catalog.describe(op, trace)

    async def describe_elsewhere(
        self, topics: Sequence[tuple[str, bytes]], trace: TraceContext | None
    ) -> dict[tuple[str, bytes], TopicDescription]:
        """Those of the topics that are not the home broker's, by name or, where that is empty,
        by id."""
        brokers = await self._catalog.brokers_of(topics, trace)
        asked = [t for t, b in zip(topics, brokers, strict=True) if b != self._routes.home]
        if not asked:
            return {}
        named = [topic for topic in asked if topic[0]]
        others = [topic for topic in asked if not topic[0]]
        op = DescribeTopics([name for name, _ in named], [topic_id for _, topic_id in others])
        answer = await self._catalog.describe(op, trace)
        return dict(zip([*named, *others], answer.topics, strict=True))

    async def lag_of_offsets(
        self, op: LagOfOffsets, trace: TraceContext | None
    ) -> list[PartitionLag]:
        """How far behind offsets in other brokers' topics are; as asked where one is away."""

        async def ask(broker: int, its: list[int]) -> list[PartitionLag]:
            part = replace(op, partitions=[op.partitions[place] for place in its])
            if self.is_there(broker):
                with suppress(UnavailableError, OpFailedError):
                    answer = await self._links[broker].ask(part, trace)
                    return answer.partitions
            return part.partitions

        brokers = (self._routes.broker_of(each.topic) for each in op.partitions)
        return await spread(grouped(brokers), ask)

    async def create_topic(self, op: CreateTopic, trace: TraceContext | None) -> CreateTopicResp:
        """Create one topic, durably, where its name is routed."""
        link = self._links[self._routes.broker_of(op.topic)]
        try:
            return await link.create_topic(op, trace, link.patience(SMALL_OP_SECONDS))
        except UnavailableError as e:
            return CreateTopicResp(b"", -1, ErrorCode.REQUEST_TIMED_OUT, str(e))

    async def delete_topic(self, op: DeleteTopic, trace: TraceContext | None) -> DeleteTopicResp:
        """Delete one topic, durably."""
        (broker,) = await self._catalog.brokers_of([(op.topic, op.topic_id)], trace)
        away = DeleteTopicResp(op.topic, op.topic_id, ErrorCode.REQUEST_TIMED_OUT)
        if broker == AWAY:
            return away
        link = self._links[broker]
        try:
            answer = await link.delete_topic(op, trace, link.patience(SMALL_OP_SECONDS))
        except UnavailableError:
            return away
        if not answer.error_code:
            self._catalog.forget(answer.topic)
            if broker != self._routes.home:
                await self._forget_offsets(answer, trace)
        return answer

    async def _forget_offsets(self, gone: DeleteTopicResp, trace: TraceContext | None) -> None:
        """Groups' offsets are at the home broker. What it does not hear of is never shown, and
        has its retention."""
        if not self.is_there(self._routes.home):
            return
        op = ForgetTopic(gone.topic, gone.topic_id)
        with suppress(UnavailableError, OpFailedError):
            await self._links[self._routes.home].ask(op, trace, RETURN_SECONDS)

    async def init_producer_id(
        self, op: InitProducerId, trace: TraceContext | None
    ) -> InitProducerIdResp:
        """A fresh producer id, or the next epoch of one. No two brokers give the same id."""
        home = self._routes.home
        others = [b for b in range(len(self._links)) if b != home]
        for broker in filter(self.is_there, [home, *others]):
            try:
                return await self._links[broker].init_producer_id(op, trace)
            except UnavailableError:
                continue  # an id that was given and got lost is no harm
        return await self._links[home].init_producer_id(op, trace)

    # --- which broker -----------------------------------------------------------------------

    def is_there(self, broker: int) -> bool:
        """Whether ops reach this broker right now. AWAY is none."""
        return broker != AWAY and self._links[broker].connected

    async def places(self, op: ManyOp, trace: TraceContext | None) -> dict[int, list[int]]:
        """Which of the op's partitions are whose, by their place in it. Whose broker cannot be
        told are AWAY's."""
        topics = [(part.topic, getattr(part, "topic_id", b"")) for part in op.partitions]
        return grouped(await self._catalog.brokers_of(topics, trace))

    async def _spread(
        self,
        op: ManyOp,
        ask: Callable[[int, ManyOp], Awaitable[list[R]]],
        failed: Callable[[int], R],
        trace: TraceContext | None,
    ) -> list[R]:
        """Ask each broker for its partitions. One that is away, where others are asked, too, is
        not waited for."""
        places = await self.places(op, trace)

        async def part(broker: int, its: list[int]) -> list[R]:
            if self.is_there(broker) or (len(places) == 1 and broker != AWAY):
                return await ask(broker, part_of(op, its))
            return [failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * len(its)

        # A task even where one broker is asked: it begins after those of the calls before.
        return await spread(places, part)

    async def _describe(
        self, broker: int, op: DescribeTopics, trace: TraceContext | None
    ) -> DescribeTopicsResp | None:
        link = self._links[broker]
        seconds = link.among_others(SMALL_OP_SECONDS)
        if seconds <= 0:
            return None
        try:
            return await link.describe_topics(op, trace, seconds)
        except (UnavailableError, OpFailedError):
            return None


def part_of(op: ManyOp, places: list[int]) -> ManyOp:
    """The op with these of its partitions alone."""
    if len(places) == len(op.partitions):
        return op
    return replace(op, partitions=[op.partitions[place] for place in places])
