"""What a cluster does now: rates of topics, lag of groups, requests of the gateway that answers.

Rates are differences of two samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quafka_client import groups, offsets, orgs, topic_bounds, topics
from quafka_client.cluster import ClientCluster
from quafka_client.errors import RequestRefusedError
from quafka_client.groups import GroupSummary
from quafka_loop import clock
from quafka_proto.schema.quafka import DescribeOrgsRequest


@dataclass(frozen=True, slots=True)
class ActiveTopic:
    """A topic; rates are per second, `bytes` on the leaders' disks; None: not known."""

    name: str
    partitions: int
    records_per_second: float
    bytes_per_second: float | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class GatewayTraffic:
    """The traffic of the gateway process that answers, per second, over all orgs."""

    connections: int
    requests_per_second: float
    received_per_second: float
    sent_per_second: float


@dataclass(frozen=True, slots=True)
class Activity:
    """Between two samples. `gateway`: None for other servers, and for who is no operator."""

    seconds: float
    topics: list[ActiveTopic]
    groups: list[GroupSummary]
    gateway: GatewayTraffic | None


@dataclass(frozen=True, slots=True)
class ActivitySample:
    """The counters at a moment, in seconds."""

    at: float
    ids: Mapping[str, bytes]
    partitions: Mapping[str, int]
    ends: Mapping[str, int]
    bytes: Mapping[str, int] | None
    groups: Sequence[GroupSummary]
    requests: tuple[int, int, int, int] | None


async def sample(cluster: ClientCluster) -> ActivitySample:
    """Read the counters. Raises ClientError."""
    found = [each for each in await topics.listed(cluster) if not each.is_internal]
    usable = [each for each in found if all(part.leader_id >= 0 for part in each.partitions)]
    ends: dict[str, int] = {}
    for (name, _), end in (await offsets.list_offsets_of(cluster, usable, offsets.END)).items():
        ends[name] = ends.get(name, 0) + end
    at = clock.monotonic()
    return ActivitySample(
        at,
        {each.name or "": each.topic_id for each in found},
        {each.name or "": len(each.partitions) for each in found},
        ends,
        await topic_bounds.sizes_by_topic(cluster, usable),
        await groups.summaries(cluster, ()),
        await _requests(cluster),
    )


async def _requests(cluster: ClientCluster) -> tuple[int, int, int, int] | None:
    if not cluster.any.has(DescribeOrgsRequest):
        return None
    try:
        found = await orgs.orgs(cluster)
    except RequestRefusedError:
        return None  # not an operator
    return (
        sum(each.connections for each in found),
        sum(each.requests for each in found),
        sum(each.received_bytes for each in found),
        sum(each.sent_bytes for each in found),
    )


def between(before: ActivitySample, after: ActivitySample) -> Activity:
    """The rates of the time between two samples."""
    seconds = max(after.at - before.at, 1e-3)
    found: list[ActiveTopic] = []
    for name, partitions in after.partitions.items():
        # A topic that was created anew since has other offsets.
        same = before.ids.get(name) == after.ids[name]
        end = after.ends.get(name, 0)
        records = max(0, end - before.ends.get(name, end)) if same else 0
        size = None if after.bytes is None else after.bytes.get(name, 0)
        grown: float | None = None
        if size is not None and before.bytes is not None:
            grown = max(0, size - before.bytes.get(name, size)) / seconds if same else 0.0
        found.append(ActiveTopic(name, partitions, records / seconds, grown, size))
    return Activity(seconds, found, list(after.groups), _traffic(before, after, seconds))


def _traffic(
    before: ActivitySample, after: ActivitySample, seconds: float
) -> GatewayTraffic | None:
    if before.requests is None or after.requests is None:
        return None
    rates = [
        max(0, now - then) / seconds
        for then, now in zip(before.requests[1:], after.requests[1:], strict=True)
    ]
    return GatewayTraffic(after.requests[0], *rates)
