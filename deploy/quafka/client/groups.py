"""Consumer groups: their members, lag and offsets.

Lag comes from the server's DescribeGroupLag. For a server without it, lag in records is computed
here, as Kafka's own tools do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from quafka.client import offsets
from quafka.client.cluster import Cluster
from quafka.client.connection import Connection
from quafka.client.errors import ClientError, RefusedError, check, sentence
from quafka_proto.consumer_protocol import assigned_partitions
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.schema import quafka
from quafka_proto.schema.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

Place = tuple[str, int]
"""Topic and partition."""

_GROUPS_AT_ONCE = 50
_NAMED = 9
"""The last version of the offset APIs in which topics have names."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member and its assigned partitions by topic."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: dict[str, list[int]]


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


@dataclass(frozen=True, slots=True)
class Description:
    """A group. `lag`: the sum over partitions. `behind_seconds`, `catch_up_seconds`: the largest
    of the partitions'. `timed`: whether the server reports times."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: str
    members: list[Member]
    lag: int | None
    behind_seconds: float | None
    catch_up_seconds: float | None
    timed: bool
    partitions: list[PartitionLag]


# --- list -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """A group in a list."""

    group: str
    state: str
    protocol_type: str
    members: int
    lag: int | None
    behind_seconds: float | None


async def summaries(cluster: Cluster, states: Sequence[str]) -> list[Summary]:
    """All groups, by name. Raises ClientError."""
    found: list[Summary] = []
    for connection in await cluster.nodes():
        answer = await connection.call(
            ListGroupsRequest(states_filter=list(states)), ListGroupsResponse
        )
        check(answer.error_code, connection.address)
        listed = {each.group_id: each for each in answer.groups}
        names = sorted(listed)
        for at in range(0, len(names), _GROUPS_AT_ONCE):
            found += await _summaries(
                connection, [listed[n] for n in names[at : at + _GROUPS_AT_ONCE]]
            )
    wanted = {state.lower() for state in states}
    return sorted(
        (each for each in found if not wanted or each.state.lower() in wanted),
        key=lambda each: each.group,
    )


async def _summaries(connection: Connection, listed: list[ListedGroup]) -> list[Summary]:
    names = [each.group_id for each in listed]
    if connection.has(quafka.DescribeGroupLagRequest):
        request = quafka.DescribeGroupLagRequest(groups=names)
        answer = await connection.call(request, quafka.DescribeGroupLagResponse)
        return [_summary(each) for each in answer.groups if not each.error_code]
    described = (
        await connection.call(DescribeGroupsRequest(groups=names), DescribeGroupsResponse)
    ).groups
    return [
        Summary(each.group_id, each.group_state, each.protocol_type, len(each.members), None, None)
        for each in described
        if not each.error_code
    ]


def _summary(group: quafka.GroupLag) -> Summary:
    partitions = [each for topic in group.topics for each in topic.partitions]
    return Summary(
        group.group_id,
        group.group_state,
        group.protocol_type,
        len(group.members),
        _sum(_known(each.lag) for each in partitions),
        _worst(_seconds(each.behind_ms) for each in partitions if each.lag),
    )


def _sum(lags: Iterable[int | None]) -> int | None:
    """The sum of the known values; None if there are values but none is known."""
    every = list(lags)
    known = [each for each in every if each is not None]
    return sum(known) if known or not every else None


def _worst(seconds: Iterable[float | None]) -> float | None:
    """The largest value; None if one is unknown; 0 without values."""
    every = list(seconds)
    known = [each for each in every if each is not None]
    return max(known, default=0.0) if len(known) == len(every) else None


def _seconds(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


# --- describe ---------------------------------------------------------------------------------


async def describe(cluster: Cluster, name: str) -> Description:
    """A group with its members and its lag. Raises ClientError."""
    connection = await cluster.coordinator(name)
    (group,) = (
        await connection.call(DescribeGroupsRequest(groups=[name]), DescribeGroupsResponse)
    ).groups
    check(group.error_code, f"group {name!r}")
    members = [
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            _assigned(each.member_assignment) if group.protocol_type == "consumer" else {},
        )
        for each in group.members
    ]
    timed = connection.has(quafka.DescribeGroupLagRequest)
    if timed:
        lags = await _lags(connection, name)
    else:
        lags = await _counted(cluster, connection, name, members)
    if group.group_state == "Dead" and not lags:
        check(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r}")
    by_id = {member.member_id: member for member in members}
    lags = [_owned(lag, by_id) for lag in lags]
    behind = [lag for lag in lags if lag.lag]
    return Description(
        name,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        connection.address,
        members,
        _sum(lag.lag for lag in lags),
        _worst(lag.behind_seconds for lag in behind or lags),
        _worst(lag.catch_up_seconds for lag in behind or lags),
        timed,
        lags,
    )


def _assigned(assignment: bytes) -> dict[str, list[int]]:
    try:
        return {topic: sorted(its) for topic, its in assigned_partitions(assignment).items()}
    except Malformed:
        return {}


def _owned(lag: PartitionLag, members: Mapping[str, Member]) -> PartitionLag:
    member = members.get(lag.member_id or "")
    return lag if member is None else replace(lag, client_id=member.client_id, host=member.host)


async def _lags(connection: Connection, name: str) -> list[PartitionLag]:
    """Lag as the server reports it."""
    request = quafka.DescribeGroupLagRequest(groups=[name])
    (group,) = (await connection.call(request, quafka.DescribeGroupLagResponse)).groups
    check(group.error_code, f"group {name!r}")
    return [
        PartitionLag(
            topic.name,
            each.partition_index,
            _known(each.committed_offset),
            _known(each.log_start_offset),
            _known(each.high_watermark),
            _known(each.lag),
            _seconds(each.behind_ms),
            _seconds(each.catch_up_ms),
            each.member_id,
            None,
            None,
        )
        for topic in group.topics
        for each in topic.partitions
    ]


def _known(number: int) -> int | None:
    return None if number < 0 else number


async def _counted(
    cluster: Cluster, connection: Connection, name: str, members: Sequence[Member]
) -> list[PartitionLag]:
    """Lag computed from committed offsets and partition bounds, which every Kafka server has."""
    committed = await _fetch(connection, name)
    owner = {
        (topic, number): member.member_id
        for member in members
        for topic, its in member.partitions.items()
        for number in its
    }
    found: list[PartitionLag] = []
    places = sorted({*committed, *owner})
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
                    *place, offset, start, end, lag, seconds, seconds, owner.get(place), None, None
                )
            )
    return found


async def committed_offsets(cluster: Cluster, name: str) -> dict[Place, int]:
    """A group's committed offsets. Raises ClientError."""
    return await _fetch(await cluster.coordinator(name), name)


async def _fetch(connection: Connection, name: str) -> dict[Place, int]:
    request = OffsetFetchRequest(
        group_id=name,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None)],
        require_stable=True,
    )
    answer = await connection.call(request, OffsetFetchResponse, newest=_NAMED)
    result = answer.groups[0] if answer.groups else answer
    check(result.error_code, f"group {name!r}")
    topics: Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = result.topics
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


# --- change -----------------------------------------------------------------------------------


async def commit(
    cluster: Cluster, name: str, wanted: Mapping[Place, int]
) -> dict[Place, str | None]:
    """Commit offsets for a group without members; return each one's error. Raises ClientError."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=place[1], committed_offset=offset, committed_metadata=""
                )
                for place, offset in wanted.items()
                if place[0] == topic
            ],
        )
        for topic in sorted({topic for topic, _ in wanted})
    ]
    connection = await cluster.coordinator(name)
    request = OffsetCommitRequest(group_id=name, topics=topics)
    answer = await connection.call(request, OffsetCommitResponse, newest=_NAMED)
    return {
        (topic.name, each.partition_index): sentence(each.error_code) if each.error_code else None
        for topic in answer.topics
        for each in topic.partitions
    }


async def delete_offsets(
    cluster: Cluster, name: str, places: Iterable[Place]
) -> dict[Place, str | None]:
    """Delete committed offsets; return each one's error. Raises ClientError."""
    wanted = list(places)
    topics = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[
                OffsetDeleteRequestPartition(partition_index=number)
                for its, number in wanted
                if its == topic
            ],
        )
        for topic in sorted({topic for topic, _ in wanted})
    ]
    connection = await cluster.coordinator(name)
    request = OffsetDeleteRequest(group_id=name, topics=topics)
    answer = await connection.call(request, OffsetDeleteResponse)
    check(answer.error_code, f"group {name!r}")
    return {
        (topic.name, each.partition_index): sentence(each.error_code) if each.error_code else None
        for topic in answer.topics
        for each in topic.partitions
    }


async def delete(cluster: Cluster, names: Sequence[str]) -> dict[str, str | None]:
    """Delete groups and their offsets; return each one's error. Raises ClientError."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            connection = await cluster.coordinator(name)
        except ClientError as e:
            found[name] = str(e)
            continue
        answer = await connection.call(
            DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse
        )
        (result,) = answer.results
        found[name] = sentence(result.error_code) if result.error_code else None
    return found
