"""Topics, their records and their producers: ops that go to the broker of each topic.

An unavailable broker, or a lost answer, is a retriable Kafka error in every partition of that
broker. If the table has one broker, ops that name topics raise `BrokerUnavailableError` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace

from quafka_gateway.cluster.broker_link import (
    RETURN_SECONDS,
    SMALL_OP_SECONDS,
    BrokerLink,
    BrokerUnavailableError,
)
from quafka_gateway.cluster.catalog import UNKNOWN_BROKER
from quafka_gateway.cluster.cluster import Cluster
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_mesh_ops.ops.group_offsets import ForgetTopic
from quafka_mesh_ops.ops.records import (
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
)
from quafka_mesh_ops.shards import Hashed
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext


class ClusterTopics:
    """One method per op. Answers about partitions are in the order of the op's partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._only = cluster.only

    # --- partitions -------------------------------------------------------------------------

    def produce(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None
    ) -> Awaitable[list[ProduceOpResp]]:
        """Append; see `BrokerLink.produce`. Ops on one `lane` reach each log in call order."""
        if self._only is not None:
            return self._only.produce(op, lane, timeout, trace)

        home = self._cluster.home
        if op.transactional_id:
            home = self._cluster.link_of_transaction(op.transactional_id)

        def call(link: BrokerLink, part: ProduceOps) -> Awaitable[list[ProduceOpResp]]:
            if part.transactional_id and link is not home:
                # That broker asks the coordinator before it adds partitions to the transaction.
                if not home.node_id:
                    raise BrokerUnavailableError(
                        "the transaction's coordinator was never connected"
                    )
                part = replace(part, home=home.node_id)
            return link.produce(part, lane, timeout, trace)

        def failed(code: int) -> ProduceOpResp:
            return ProduceOpResp(base_offset=-1, error_code=code, log_start_offset=-1)

        return self._cluster.spread_partitions(op, call, failed, trace)

    def begin_produce(
        self, op: ProduceOps, lane: int, timeout: float
    ) -> DirectFuture[list[ProduceOpResp]]:
        """See `BrokerLink.begin_produce`."""
        if self._only is not None:
            return self._only.begin_produce(op, lane, timeout)
        return EagerTask(self._produced(op, lane, timeout))

    async def _produced(self, op: ProduceOps, lane: int, timeout: float) -> list[ProduceOpResp]:
        return await self.produce(op, lane, timeout, None)

    # --- topics -----------------------------------------------------------------------------

    def describe(
        self, op: DescribeTopics, trace: TraceContext | None
    ) -> Awaitable[DescribeTopicsResp]:
        """Topics of all brokers as one list. The list may be shared: do not change it."""
        if self._only is not None:
            return self._only.describe_topics(op, trace)
        return self._cluster.catalog.describe(op, trace)

    async def create(self, op: CreateTopic, trace: TraceContext | None) -> CreateTopicResp:
        """Create one topic, durably, at the broker that its name is routed to."""
        link = self._cluster.link_of(op.topic)
        try:
            answer = await link.call(op, trace, self._patience(link))
        except BrokerUnavailableError as e:
            return CreateTopicResp(b"", -1, self._code(e), str(e))
        if not answer.error_code and not op.validate_only:
            self._cluster.catalog.add(op.topic, answer.topic_id, answer.partitions)
        return answer

    async def delete(self, op: DeleteTopic, trace: TraceContext | None) -> DeleteTopicResp:
        """Delete one topic, durably, with the offsets that groups have committed in it."""
        (broker,) = await self._cluster.catalog.brokers_of([(op.topic, op.topic_id)], trace)
        if broker == UNKNOWN_BROKER:
            return DeleteTopicResp(op.topic, op.topic_id, ErrorCode.REQUEST_TIMED_OUT)
        link = self._cluster.links[broker]
        try:
            answer = await link.call(op, trace, self._patience(link))
        except BrokerUnavailableError as e:
            return DeleteTopicResp(op.topic, op.topic_id, self._code(e))
        if not answer.error_code:
            self._cluster.catalog.remove(answer.topic)
            await self._remove_offsets(link, answer, trace)
        return answer

    async def _remove_offsets(
        self, link: BrokerLink, deleted: DeleteTopicResp, trace: TraceContext | None
    ) -> None:
        """Coordinators keep the offsets of all topics. If one misses the deletion, the offsets are
        never shown, and retention removes them."""
        op = ForgetTopic(deleted.topic, deleted.topic_id)

        async def forget(coordinator: BrokerLink) -> None:
            with suppress(BrokerUnavailableError):
                await coordinator.call(op, trace, RETURN_SECONDS)

        others = self._cluster.coordinators(Hashed.GROUP)
        await asyncio.gather(
            *(forget(each) for each in others if each is not link and each.connected)
        )

    def _patience(self, link: BrokerLink) -> float:
        return link.wait_once(SMALL_OP_SECONDS) if self._only is None else SMALL_OP_SECONDS

    def _code(self, error: BrokerUnavailableError) -> int:
        """The error code of a topic. Raises the error if the only broker did not answer."""
        if self._only is not None and error.unanswered:
            raise error
        return error.code_or(ErrorCode.REQUEST_TIMED_OUT)

    # --- producers --------------------------------------------------------------------------

    async def init_producer_id(
        self, op: InitProducerId, trace: TraceContext | None
    ) -> InitProducerIdResp:
        """A new producer id, or the next epoch of one. No two brokers assign the same id.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        home = self._cluster.home
        if self._only is None:
            others = [link for link in self._cluster.links if link is not home]
            for link in [home, *others]:
                if link.connected:
                    # Losing an assigned id does no harm.
                    with suppress(BrokerUnavailableError):
                        return await _init_producer_id(link, op, trace)
        return await _init_producer_id(home, op, trace)


async def _init_producer_id(
    link: BrokerLink, op: InitProducerId, trace: TraceContext | None
) -> InitProducerIdResp:
    try:
        return await link.call(op, trace)
    except BrokerUnavailableError as e:
        if e.unanswered:
            raise
        return InitProducerIdResp(-1, -1, e.code)
