"""Transactions: ops that go to the broker that coordinates the transactional id, its *home*.

A transaction may have partitions, and groups, of other brokers, which the gateway names by their
node ids: home has them end their parts (ADR 47).

An unavailable coordinator is NOT_COORDINATOR: clients look for their coordinator, find this gateway
again, and continue. All of these ops are safe to retry. The offsets that a transaction commits are
among the ops on groups (`group_coordinator.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError, coordinator_code
from quafka_gateway.cluster.cluster import Cluster
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.transactions import (
    AddOffsets,
    AddPartitions,
    BrokerPartitions,
    EndTransaction,
    EndTransactionResp,
    InitTransactions,
    InitTransactionsResp,
    ListTransactions,
    ListTransactionsResp,
    TransactionalProducer,
    WriteMarkers,
)
from quafka_mesh_ops.shards import Hashed
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext


def _count(topics: Sequence[PartitionsByTopic]) -> int:
    return sum(len(topic.partitions) for topic in topics)


class ClusterTransactions:
    """One method per op. Errors are in the answers, unless a method says otherwise."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _home(self, producer: TransactionalProducer) -> BrokerLink:
        return self._cluster.link_of_transaction(producer.transactional_id)

    async def init(self, op: InitTransactions, trace: TraceContext | None) -> InitTransactionsResp:
        """Begin a producer's session; fences the earlier one, durably.

        Raises:
            BrokerUnavailableError: the transactional id was used on a newer connection. Either the
                client has given up this one, or another producer of the id has connected later. A
                client that is still there must connect anew: NOT_COORDINATOR would have it ask
                again on this connection, for ever in vain.
        """
        try:
            answer = await self._home(op.producer).call(op, trace)
        except BrokerUnavailableError as e:
            return InitTransactionsResp(error_code=coordinator_code(e))
        if answer.error_code == ErrorCode.NOT_COORDINATOR:
            raise BrokerUnavailableError("the transactional id was used on a newer connection")
        return answer

    async def add_partitions(self, op: AddPartitions, trace: TraceContext | None) -> list[int]:
        """Add partitions to a transaction, or verify them; one error code for each.

        POLICY_VIOLATION: home does not know one of the other brokers that have them. Clients
        abort, and do not retry.
        """
        home = self._home(op.producer)
        links = [self._cluster.link_of(topic.topic) for topic in op.topics]
        if all(link is home for link in links):
            try:
                return (await home.call(op, trace)).partitions
            except BrokerUnavailableError as e:
                return [coordinator_code(e)] * _count(op.topics)
        if not all(link.node_id for link in links):  # never connected: clients retry
            return [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * _count(op.topics)
        # Home answers its own partitions first, then those of each other broker.
        order = sorted(range(len(links)), key=lambda at: self._cluster.links.index(links[at]))
        order.sort(key=lambda at: links[at] is not home)
        elsewhere: dict[str, list[PartitionsByTopic]] = {}
        for at in order:
            if links[at] is not home:
                elsewhere.setdefault(links[at].node_id, []).append(op.topics[at])
        its = [op.topics[at] for at in order if links[at] is home]
        others = [BrokerPartitions(*each) for each in elsewhere.items()]
        try:
            asked = replace(op, topics=its, elsewhere=others)
            codes = (await home.call(asked, trace)).partitions
        except BrokerUnavailableError as e:
            return [coordinator_code(e)] * _count(op.topics)
        # An older broker does not answer partitions elsewhere, and has not added them.
        rest = chain(codes, repeat(ErrorCode.POLICY_VIOLATION))
        by_topic = {at: [next(rest) for _ in op.topics[at].partitions] for at in order}
        return [code for at in range(len(links)) for code in by_topic[at]]

    async def add_offsets(self, op: AddOffsets, trace: TraceContext | None) -> int:
        """Add a group's offsets to a transaction; the error code."""
        home, its = self._home(op.producer), self._cluster.link_of_group(op.group)
        if its is not home:
            if not its.node_id:  # never connected: clients retry
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            op = replace(op, elsewhere=its.node_id)
        try:
            return (await home.call(op, trace)).error_code
        except BrokerUnavailableError as e:
            return coordinator_code(e)

    async def end(self, op: EndTransaction, trace: TraceContext | None) -> EndTransactionResp:
        """Commit or abort; all of the transaction is durable on return without an error."""
        try:
            return await self._home(op.producer).call(op, trace)
        except BrokerUnavailableError as e:
            return EndTransactionResp(error_code=coordinator_code(e))

    async def write_markers(self, op: WriteMarkers, trace: TraceContext | None) -> list[int]:
        """End a producer's open transaction in these partitions; one error code for each.

        A transaction that its home knows is aborted there first: the other brokers follow.
        """
        if self._cluster.only is None:
            whole = WriteMarkers(op.producer_id, op.producer_epoch, op.commit, [])

            async def abort(home: BrokerLink) -> None:
                with suppress(BrokerUnavailableError):  # the other brokers find out by themselves
                    await home.call(whole, trace)

            homes = self._cluster.coordinators(Hashed.TRANSACTION)
            await asyncio.gather(*(abort(home) for home in homes if home.connected))

        async def call(link: BrokerLink, its: list[PartitionsByTopic]) -> list[list[int]]:
            part = WriteMarkers(
                op.producer_id, op.producer_epoch, op.commit, its, op.coordinator_epoch
            )
            try:
                answers = (await link.call(part, trace)).partitions
            except BrokerUnavailableError as e:
                code = e.code_or(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return [[code] * len(topic.partitions) for topic in its]
            rest = iter(answers)
            return [[next(rest) for _ in topic.partitions] for topic in its]

        by_topic = await self._cluster.spread_by_topic(op.topics, call)
        return [code for codes in by_topic for code in codes]

    async def list_all(
        self, op: ListTransactions, trace: TraceContext | None
    ) -> ListTransactionsResp:
        """The org's transactional ids that match.

        Raises:
            BrokerUnavailableError: with the error code that clients of a coordinator expect; one of
                the coordinators does not answer.
        """
        homes = self._cluster.coordinators(Hashed.TRANSACTION)
        try:
            answers = await asyncio.gather(*(home.call(op, trace) for home in homes))
            return ListTransactionsResp([each for found in answers for each in found.transactions])
        except BrokerUnavailableError as e:
            raise BrokerUnavailableError(str(e), coordinator_code(e)) from e
