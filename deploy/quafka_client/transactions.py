"""Transactions: list, describe and abort them (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quafka_client.cluster import TRANSACTION, ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError, RequestRefusedError, check, sentence
from quafka_client.offsets import END, list_offsets
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from quafka_proto.schema.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    ProducerState,
    ProducersTopicRequest,
    TransactionState,
)
from quafka_proto.schema.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_AT_ONCE = 100
_AGAIN_SECONDS = 0.1
_FENCING_TIMEOUT_MS = 1_000
_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """A transactional id in a list. `open_seconds`, `partitions`: of its open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    open_seconds: float | None
    timeout_seconds: float | None
    partitions: int | None
    coordinator: str


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """A partition of an open transaction.

    Attributes:
        first_offset: the transaction's first in the partition; None: it has no records there.
        last_stable_offset: where consumers with read_committed stop.
        held_back: records of any transaction that these consumers cannot read yet.
    """

    topic: str
    partition: int
    first_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    held_back: int | None


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """A transactional id and its open transaction."""

    transactional_id: str
    state: str
    coordinator: str
    producer_id: int
    producer_epoch: int
    timeout_seconds: float
    open_seconds: float | None
    started_ms: int | None
    partitions: list[OpenPartition]


# --- list -------------------------------------------------------------------------------------


async def summaries(
    cluster: ClientCluster, states: Sequence[str], open_for: float | None, now_ms: int
) -> list[TransactionSummary]:
    """Transactional ids, the longest open transaction first. Raises ClientError.

    `open_for`: only those whose transaction has been open for at least this many seconds.
    """
    found: list[TransactionSummary] = []
    least_ms = -1 if open_for is None else round(open_for * 1_000)
    for connection in await cluster.nodes():
        request = ListTransactionsRequest(state_filters=list(states), duration_filter=least_ms)
        answer = await connection.call(request, ListTransactionsResponse)
        check(answer.error_code, connection.address)
        if answer.unknown_state_filters:
            raise ClientError(f"no such state: {', '.join(answer.unknown_state_filters)}")
        found += await _summaries(connection, answer.transaction_states, now_ms)
    if open_for is not None:  # servers of version 0 do not know this filter
        found = [each for each in found if (each.open_seconds or -1) >= open_for]
    return sorted(found, key=lambda each: (-(each.open_seconds or 0), each.transactional_id))


async def _summaries(
    connection: ClientConnection, listed: Sequence[ListTransactionsTransactionState], now_ms: int
) -> list[TransactionSummary]:
    names = [each.transactional_id for each in listed if each.transaction_state in _OPEN]
    described: dict[str, TransactionState] = {}
    for some in _chunks(names):
        answer = await connection.call(
            DescribeTransactionsRequest(transactional_ids=some), DescribeTransactionsResponse
        )
        for state in answer.transaction_states:
            if not state.error_code:
                described[state.transactional_id] = state
    return [
        _summary(each, described.get(each.transactional_id), connection.address, now_ms)
        for each in listed
    ]


def _summary(
    listed: ListTransactionsTransactionState,
    described: TransactionState | None,
    coordinator: str,
    now_ms: int,
) -> TransactionSummary:
    facts = listed.transactional_id, listed.transaction_state, listed.producer_id
    if described is None:
        return TransactionSummary(*facts, None, None, None, coordinator)
    return TransactionSummary(
        *facts,
        _seconds_since(described.transaction_start_time_ms, now_ms),
        described.transaction_timeout_ms / 1_000,
        sum(len(topic.partitions) for topic in described.topics),
        coordinator,
    )


def _seconds_since(start_ms: int, now_ms: int) -> float | None:
    return max(0, now_ms - start_ms) / 1_000 if start_ms >= 0 else None


# --- describe ---------------------------------------------------------------------------------


async def describe(cluster: ClientCluster, name: str, now_ms: int) -> TransactionDetails:
    """A transactional id, and what its open transaction holds back. Raises ClientError."""
    connection = await cluster.coordinator(name, TRANSACTION)
    answer = await connection.call(
        DescribeTransactionsRequest(transactional_ids=[name]), DescribeTransactionsResponse
    )
    (found,) = answer.transaction_states
    check(found.error_code, f"transactional id {name!r}")
    places = [(each.topic, number) for each in found.topics for number in each.partitions]
    # Brokers keep the start of a transaction that has ended.
    start_ms = found.transaction_start_time_ms if found.transaction_state in _OPEN else -1
    return TransactionDetails(
        name,
        found.transaction_state,
        connection.address,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms / 1_000,
        _seconds_since(start_ms, now_ms),
        start_ms if start_ms >= 0 else None,
        await _open_partitions(cluster, places, found.producer_id),
    )


async def _open_partitions(
    cluster: ClientCluster, places: Iterable[Place], producer_id: int
) -> list[OpenPartition]:
    found: list[OpenPartition] = []
    for topic, numbers in _by_topic(places).items():
        try:
            described = await cluster.topic(topic)
            producers = await producers_of(cluster, topic, numbers)
            ends = await list_offsets(cluster, described, END)
            stable = await list_offsets(cluster, described, END, committed=True)
        except RequestRefusedError:  # deleted, or internal: the offsets of a group
            found += [OpenPartition(topic, number, None, None, None, None) for number in numbers]
            continue
        for number in numbers:
            starts = [
                each.current_txn_start_offset
                for each in producers.get(number, ())
                if each.producer_id == producer_id and each.current_txn_start_offset >= 0
            ]
            end, last_stable = ends[number], stable[number]
            first = starts[0] if starts else None
            found.append(OpenPartition(topic, number, first, last_stable, end, end - last_stable))
    return found


async def producers_of(
    cluster: ClientCluster, topic: str, numbers: Sequence[int]
) -> dict[int, list[ProducerState]]:
    """The producers of some partitions of a topic. Raises ClientError."""
    found: dict[int, list[ProducerState]] = {}
    for connection, its in await cluster.each_leader(await cluster.topic(topic)):
        wanted = [number for number in its if number in numbers]
        if not wanted:
            continue
        asked = [ProducersTopicRequest(name=topic, partition_indexes=wanted)]
        request = DescribeProducersRequest(topics=asked)
        for answer in (await connection.call(request, DescribeProducersResponse)).topics:
            for each in answer.partitions:
                what = f"partition {each.partition_index} of {topic!r}"
                check(each.error_code, what, each.error_message)
                found[each.partition_index] = each.active_producers
    return found


# --- abort ------------------------------------------------------------------------------------


async def abort(cluster: ClientCluster, name: str) -> None:
    """Abort the open transaction of a transactional id, and fence its producer.

    Raises:
        ClientError: no such id, or it could not be aborted in time.
    """
    connection = await cluster.coordinator(name, TRANSACTION)
    # InitProducerId would create an id that does not exist.
    answer = await connection.call(
        DescribeTransactionsRequest(transactional_ids=[name]), DescribeTransactionsResponse
    )
    check(answer.transaction_states[0].error_code, f"transactional id {name!r}")
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=_FENCING_TIMEOUT_MS
    )
    give_up = asyncio.get_running_loop().time() + cluster.timeout
    while True:
        code = (await connection.call(request, InitProducerIdResponse)).error_code
        ending = code == ErrorCode.CONCURRENT_TRANSACTIONS
        if not ending or asyncio.get_running_loop().time() >= give_up:
            break
        await asyncio.sleep(_AGAIN_SECONDS)
    check(code, f"transactional id {name!r}")


async def abort_in_partitions(
    cluster: ClientCluster, topic: str, numbers: Sequence[int] | None, producer_id: int | None
) -> dict[tuple[int, int], str | None]:
    """End open transactions in partitions of a topic, without their coordinator.

    Returns the error, or None, for each partition and producer id that had one open. Raises
    ClientError.
    """
    described = await cluster.topic(topic)
    every = {each.partition_index for each in described.partitions}
    chosen = sorted(every if numbers is None else set(numbers))
    if set(chosen) - every:
        raise ClientError(f"topic {topic!r} has no partition {min(set(chosen) - every)}")
    producers = await producers_of(cluster, topic, chosen)
    found: dict[tuple[int, int], str | None] = {}
    for connection, its in await cluster.each_leader(described):
        markers = [
            _marker(topic, number, each)
            for number in its
            for each in producers.get(number, ())
            if each.current_txn_start_offset >= 0 and producer_id in (None, each.producer_id)
        ]
        if markers:
            request = WriteTxnMarkersRequest(markers=markers)
            answer = await connection.call(request, WriteTxnMarkersResponse)
            found.update(_errors(answer))
    return found


def _marker(topic: str, number: int, producer: ProducerState) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )


def _errors(answer: WriteTxnMarkersResponse) -> Mapping[tuple[int, int], str | None]:
    return {
        (each.partition_index, marker.producer_id): sentence(each.error_code)
        if each.error_code
        else None
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, []).append(number)
    return found


def _chunks(names: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(names), _AT_ONCE):
        yield names[at : at + _AT_ONCE]
