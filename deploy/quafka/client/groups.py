"""Consumer groups: list, describe and delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quafka.client.cluster import Cluster
from quafka.client.connection import Connection
from quafka.client.errors import ClientError, check, sentence
from quafka.client.group_lag import (
    PartitionLag,
    computed_lags,
    known_number,
    known_seconds,
    largest_if_known,
    reported_lags,
    sum_of_known,
)
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

_GROUPS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Member:
    """A member and its assigned partitions by topic."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: dict[str, list[int]]


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
        sum_of_known(known_number(each.lag) for each in partitions),
        largest_if_known(known_seconds(each.behind_ms) for each in partitions if each.lag),
    )


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
        lags = await reported_lags(connection, name)
    else:
        owners = {
            (topic, number): member.member_id
            for member in members
            for topic, its in member.partitions.items()
            for number in its
        }
        lags = await computed_lags(cluster, connection, name, owners)
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
        sum_of_known(lag.lag for lag in lags),
        largest_if_known(lag.behind_seconds for lag in behind or lags),
        largest_if_known(lag.catch_up_seconds for lag in behind or lags),
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


# --- delete -----------------------------------------------------------------------------------


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
