"""The lag of a consumer group in each partition.

It comes from the server's DescribeGroupLag. For a server without it, lag in records is computed
here, as Kafka's own tools do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quafka.client import offsets
from quafka.client.cluster import Cluster
from quafka.client.connection import Connection
from quafka.client.errors import RefusedError, check
from quafka.client.group_offsets import Place, fetch_offsets
from quafka_proto.schema import quafka


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's lag in one partition; None: unknown.

    `lag`: in records. `behind_seconds`: the age of the first record not consumed.
    `catch_up_seconds`: the time until all are consumed, at the present pace.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_start_offset: int | None
    high_watermark: int | None
    lag: int | None
    behind_seconds: float | None
    catch_up_seconds: float | None
    member_id: str | None
    client_id: str | None
    host: str | None


async def reported_lags(connection: Connection, name: str) -> list[PartitionLag]:
    """Lag as the server reports it."""
    request = quafka.DescribeGroupLagRequest(groups=[name])
    (group,) = (await connection.call(request, quafka.DescribeGroupLagResponse)).groups
    check(group.error_code, f"group {name!r}")
    return [
        PartitionLag(
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
    cluster: Cluster, connection: Connection, name: str, owners: Mapping[Place, str]
) -> list[PartitionLag]:
    """Lag computed from committed offsets and partition bounds, which every Kafka server has.

    `owners`: the member id of each assigned partition.
    """
    committed = await fetch_offsets(connection, name)
    found: list[PartitionLag] = []
    places = sorted({*committed, *owners})
    for name_ in sorted({topic for topic, _ in places}):
        try:
            topic = await cluster.topic(name_)
            starts = await offsets.list_offsets(cluster, topic, offsets.START)
            ends = await offsets.list_offsets(cluster, topic, offsets.END)
        except RefusedError:  # the topic was deleted
            starts, ends = {}, {}
        for place in (each for each in places if each[0] == name_):
            offset, start, end = committed.get(place), starts.get(place[1]), ends.get(place[1])
            lag = None
            if offset is not None and start is not None and end is not None:
                lag = max(0, end - max(offset, start))
            seconds = 0.0 if lag == 0 else None
            found.append(
                PartitionLag(
                    *place, offset, start, end, lag, seconds, seconds, owners.get(place), None, None
                )
            )
    return found


# --- numbers ----------------------------------------------------------------------------------


def known_number(number: int) -> int | None:
    """A number of the server; a negative one means unknown."""
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
    """Milliseconds of the server as seconds; negative ones mean unknown."""
    return None if ms < 0 else ms / 1000
