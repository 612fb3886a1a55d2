"""The lag of a consumer group in each partition.

It comes from the server's DescribeGroupLag. For a server without it, lag in records is computed
here, as Kafka's own tools do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from quafka_client import offsets
from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import RequestRefusedError, check
from quafka_client.group_offsets import Place, fetch_offsets
from quafka_proto.schema import quafka
from quafka_proto.schema.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)


@dataclass(frozen=True, slots=True)
class ShownPartitionLag:
    """A group's lag in one partition; None: unknown.

    `lag`: in records. `behind_seconds`: the age of the first record not consumed.
    `catch_up_seconds`: the time until all are consumed, at the present pace.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    lag: int | None = None
    behind_seconds: float | None = None
    catch_up_seconds: float | None = None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None


async def share_lags(connection: ClientConnection, name: str) -> list[ShownPartitionLag]:
    """A share group's lag. Its committed offset is its share-partition start offset."""
    asked = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)]
    answer = await connection.call(
        DescribeShareGroupOffsetsRequest(groups=asked), DescribeShareGroupOffsetsResponse
    )
    (group,) = answer.groups
    check(group.error_code, f"group {name!r}")
    return [
        ShownPartitionLag(
            topic.topic_name, each.partition_index, known_number(each.start_offset), None, None,
            known_number(each.lag), None, None, None, None, None,
        )
        for topic in sorted(group.topics, key=lambda topic: topic.topic_name)
        for each in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]  # fmt: skip


async def lag_of_shares(
    connection: ClientConnection, names: Sequence[str]
) -> dict[str, dict[str, int | None]]:
    """The lag of each share group by topic; groups that the server refuses are left out."""
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in names]
    )
    if not connection.has(DescribeShareGroupOffsetsRequest):
        return {}
    answer = await connection.call(request, DescribeShareGroupOffsetsResponse)
    return {
        group.group_id: {
            topic.topic_name: sum_of_known(known_number(each.lag) for each in topic.partitions)
            for topic in group.topics
        }
        for group in answer.groups
        if not group.error_code
    }


async def end_offsets(
    cluster: ClientCluster, lags: Sequence[ShownPartitionLag]
) -> list[ShownPartitionLag]:
    """The lags with the high watermarks of the partitions whose topics exist."""
    ends: dict[Place, int] = {}
    for name in dict.fromkeys(lag.topic for lag in lags):
        with suppress(RequestRefusedError):
            topic = await cluster.topic(name)
            found = await offsets.list_offsets(cluster, topic, offsets.END)
            ends |= {(name, number): offset for number, offset in found.items()}
    return [replace(lag, high_watermark=ends.get((lag.topic, lag.partition))) for lag in lags]


async def reported_lags(connection: ClientConnection, name: str) -> list[ShownPartitionLag]:
    """Lag as the server reports it."""
    request = quafka.DescribeGroupLagRequest(groups=[name])
    (group,) = (await connection.call(request, quafka.DescribeGroupLagResponse)).groups
    check(group.error_code, f"group {name!r}")
    return [
        ShownPartitionLag(
            topic.name,
            each.partition_index,
            known_number(each.committed_offset),
            known_number(each.log_start_offset),
            known_number(each.high_watermark),
            known_number(each.lag),
            known_seconds(each.behind_ms),
            known_seconds(each.catch_up_ms),
            each.member_id,
            None,
            None,
        )
        for topic in group.topics
        for each in topic.partitions
    ]


async def computed_lags(
    cluster: ClientCluster, connection: ClientConnection, name: str, owners: Mapping[Place, str]
) -> list[ShownPartitionLag]:
    """Lag computed from committed offsets and partition bounds, which every Kafka server has.

    `owners`: the member id of each assigned partition.
    """
    committed = await fetch_offsets(connection, name)
    found: list[ShownPartitionLag] = []
    places = sorted({*committed, *owners})
    for name_ in sorted({topic for topic, _ in places}):
        try:
            topic = await cluster.topic(name_)
            starts = await offsets.list_offsets(cluster, topic, offsets.START)
            ends = await offsets.list_offsets(cluster, topic, offsets.END)
        except RequestRefusedError:  # the topic was deleted
            starts, ends = {}, {}
        for place in (each for each in places if each[0] == name_):
            offset, start, end = committed.get(place), starts.get(place[1]), ends.get(place[1])
            lag = None
            if offset is not None and start is not None and end is not None:
                lag = max(0, end - max(offset, start))
            seconds = 0.0 if lag == 0 else None
            found.append(
                ShownPartitionLag(
                    *place, offset, start, end, lag, seconds, seconds, owners.get(place), None, None
                )
            )
    return found


# --- numbers ----------------------------------------------------------------------------------


def known_number(number: int) -> int | None:
    """A number from the server; a negative one means unknown."""
    return None if number < 0 else number


def sum_of_known(lags: Iterable[int | None]) -> int | None:
    """The sum of the known values; None if there are values but none is known."""
    every = list(lags)
    known = [each for each in every if each is not None]
    return sum(known) if known or not every else None


def largest_if_known(seconds: Iterable[float | None]) -> float | None:
    """The largest value; None if one is unknown; 0 without values."""
    every = list(seconds)
    known = [each for each in every if each is not None]
    return max(known, default=0.0) if len(known) == len(every) else None


def known_seconds(ms: int) -> float | None:
    """Milliseconds from the server as seconds; negative ones mean unknown."""
    return None if ms < 0 else ms / 1000
