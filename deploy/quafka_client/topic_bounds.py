"""Starts, ends and sizes of the partitions of many topics: a request for each to every leader."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quafka_client import configs, log_dirs, offsets
from quafka_client.cluster import ClientCluster
from quafka_client.configs import ConfigResourceKind
from quafka_client.errors import RequestRefusedError
from quafka_loop import clock
from quafka_proto.schema.configs import DescribeConfigsRequest
from quafka_proto.schema.log_dirs import DescribeLogDirsRequest
from quafka_proto.schema.metadata import MetadataResponseTopic

SOURCE = "quafka.source"
"""The config of topics whose records another system stores; their offsets have gaps."""

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """Start and end of partitions of topics, and their bytes; None: not known.

    `at`: when they were read, in seconds; `ids`: of the topics by name, to tell apart those of
    several orgs and times.
    """

    at: float
    ids: Mapping[str, bytes]
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    sizes: Mapping[Place, int] | None

    def records(self) -> dict[str, list[int]]:
        """The offsets between start and end of each partition, by topic."""
        found: dict[str, list[int]] = {}
        for place, end in self.ends.items():
            found.setdefault(place[0], []).append(max(0, end - self.starts.get(place, end)))
        return found

    def end_sums(self) -> Counter[str]:
        """The sum of the end offsets, by topic."""
        return _by_topic(self.ends)

    def bytes(self) -> Counter[str] | None:
        """On the disks of the leaders, by topic."""
        return None if self.sizes is None else _by_topic(self.sizes)


def _by_topic(counts: Mapping[Place, int]) -> Counter[str]:
    found = Counter[str]()
    for (topic, _), count in counts.items():
        found[topic] += count
    return found


async def bounds_of(cluster: ClientCluster, found: Sequence[MetadataResponseTopic]) -> TopicBounds:
    """The bounds of topics, all of whose partitions have leaders. Raises ClientError."""
    starts = await offsets.list_offsets_of(cluster, found, offsets.START)
    ends = await offsets.list_offsets_of(cluster, found, offsets.END)
    ids = {each.name or "": each.topic_id for each in found}
    return TopicBounds(clock.monotonic(), ids, starts, ends, await _sizes(cluster, found))


async def sizes_by_topic(
    cluster: ClientCluster, found: Sequence[MetadataResponseTopic]
) -> Counter[str] | None:
    """The bytes of topics at the leaders, as `TopicBounds.bytes`. Raises ClientError."""
    sizes = await _sizes(cluster, found)
    return None if sizes is None else _by_topic(sizes)


async def _sizes(
    cluster: ClientCluster, found: Sequence[MetadataResponseTopic]
) -> dict[Place, int] | None:
    if not cluster.any.has(DescribeLogDirsRequest):
        return None
    try:
        return await log_dirs.sizes_of(cluster, found)
    except RequestRefusedError:
        return None


# --- a list of topics -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeasuredTopic:
    """A topic in a list, with its figures; None: not known, or not asked for.

    `records`: between start and end; `bytes`: at the leaders.
    """

    name: str
    partitions: int
    replicas: int
    internal: bool
    records: int | None
    bytes: int | None
    records_per_second: float | None


async def measured(
    cluster: ClientCluster, found: Sequence[MetadataResponseTopic], seconds: float | None
) -> list[MeasuredTopic]:
    """The figures of topics; `seconds`: over which rates are measured, None: no rates.

    Raises ClientError.
    """
    usable = [each for each in found if all(part.leader_id >= 0 for part in each.partitions)]
    gaps = await _with_gaps(cluster, [each.name or "" for each in usable])
    first = await bounds_of(cluster, usable)
    rates: dict[str, float] = {}
    if seconds is not None:
        await asyncio.sleep(seconds)
        before = first.end_sums()
        ends = await offsets.list_offsets_of(cluster, usable, offsets.END)
        passed = clock.monotonic() - first.at
        rates = {name: (end - before[name]) / passed for name, end in _by_topic(ends).items()}
    records = {name: sum(its) for name, its in first.records().items() if name not in gaps}
    sizes = first.bytes()
    known = {each.name for each in usable}
    return [
        MeasuredTopic(
            each.name or "",
            len(each.partitions),
            max((len(part.replica_nodes) for part in each.partitions), default=0),
            each.is_internal,
            records.get(each.name or ""),
            None if sizes is None or each.name not in known else sizes[each.name or ""],
            None if each.name in gaps else rates.get(each.name or ""),
        )
        for each in found
    ]


async def _with_gaps(cluster: ClientCluster, names: Sequence[str]) -> set[str]:
    """Topics whose offsets do not count records; empty if the user may not see configs."""
    if not cluster.any.has(DescribeConfigsRequest):
        return set()
    try:
        kind = ConfigResourceKind.TOPIC
        values = await configs.describe(cluster, kind, names, keys=[SOURCE])
    except RequestRefusedError:
        return set()
    return {name for name, its in values.items() if any(each.value for each in its)}
