"""Consumer groups: list, describe and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError, check, sentence
from quafka_client.group_lag import (
    ShownPartitionLag,
    computed_lags,
    end_offsets,
    known_number,
    known_seconds,
    lag_of_shares,
    largest_if_known,
    reported_lags,
    share_lags,
    sum_of_known,
)
from quafka_proto.consumer_protocol import assigned_partitions
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.schema import quafka, share_groups
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from quafka_proto.schema.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from quafka_proto.schema.share_groups import ShareGroupDescribeRequest, ShareGroupDescribeResponse

_GROUPS_AT_ONCE = 100
_SHARE = "share"
_CLASSIC_MEMBER = 0
_CLASSIC = "classic"
"""The kind of all groups of a server that does not report kinds."""
COPY_STATE = ("quafka-copy.", "quafka-mirror.")
"""The beginnings of the names of groups that keep the state of `quafka topics copy` and `mirror`.

Their committed offsets are offsets of a copy's source, so they have no lag in the copy.
"""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member and its assigned partitions by topic. `epoch`: None in classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: dict[str, list[int]]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group. `lag`: the sum over partitions. `behind_seconds`, `catch_up_seconds`: the maximum
    over partitions. `timed`: whether the server reports times. `epoch`: None for a classic group.
    `protocol`: the one that a classic group's members chose; otherwise the broker's assignor.
    `uncommitted`: how many partitions of its topics have no committed offset, and so no lag;
    None: unknown."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: str
    members: list[MemberDescription]
    lag: int | None
    behind_seconds: float | None
    catch_up_seconds: float | None
    timed: bool
    partitions: list[ShownPartitionLag]
    kind: str = _CLASSIC
    epoch: int | None = None
    uncommitted: int | None = None


# --- list -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list."""

    group: str
    state: str
    protocol_type: str
    members: int
    lag: int | None
    behind_seconds: float | None
    kind: str = _CLASSIC


@dataclass(frozen=True, slots=True)
class TopicLag:
    """A group's lag in a topic. `members`: those with partitions of it; None: unknown."""

    members: int | None
    lag: int | None
    behind_seconds: float | None
    catch_up_seconds: float | None


@dataclass(frozen=True, slots=True)
class LagByTopic:
    """A group, and its lag in each topic that it reads or has offsets in.

    `topics`: empty if the server does not report lag.
    """

    summary: GroupSummary
    topics: dict[str, TopicLag]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group's name, kind and state, as ListGroups has them, and its coordinator."""

    group: str
    state: str
    kind: str
    protocol_type: str
    coordinator: ClientConnection


async def listed(cluster: ClientCluster, states: Sequence[str] = ()) -> list[GroupListing]:
    """All groups in these states (none: in any), by name, without lag. Raises ClientError."""
    found: list[GroupListing] = []
    wanted = {state.lower() for state in states}
    for connection in await cluster.nodes():
        answer = await connection.call(
            ListGroupsRequest(states_filter=list(states)), ListGroupsResponse
        )
        check(answer.error_code, connection.address)
        found += [
            GroupListing(
                each.group_id,
                each.group_state,
                each.group_type.lower() or _CLASSIC,
                each.protocol_type,
                connection,
            )
            for each in answer.groups
        ]
    # Servers below version 4 ignore the filter, and report no states.
    return sorted(
        (each for each in found if not wanted or not each.state or each.state.lower() in wanted),
        key=lambda each: each.group,
    )


async def summaries(cluster: ClientCluster, states: Sequence[str]) -> list[GroupSummary]:
    """All groups in these states (none: in any), by name. Raises ClientError."""
    wanted = {state.lower() for state in states}
    found = await summaries_of(await listed(cluster, states))
    return [each for each in found if not wanted or each.state.lower() in wanted]


async def summaries_of(listings: Sequence[GroupListing]) -> list[GroupSummary]:
    """Members and lag of some groups, by name; deleted ones are left out. Raises ClientError."""
    return [each.summary for each in await lags_of(listings)]


async def lags_of(listings: Sequence[GroupListing]) -> list[LagByTopic]:
    """The lag of some groups by topic, by name; deleted ones are left out. Raises ClientError."""
    found: list[LagByTopic] = []
    for connection, its in _by_coordinator(listings):
        for at in range(0, len(its), _GROUPS_AT_ONCE):
            found += await _lags(connection, its[at : at + _GROUPS_AT_ONCE])
    found = [_of_copy(each) if keeps_copy_state(each.summary.group) else each for each in found]
    return sorted(found, key=lambda each: each.summary.group)


def keeps_copy_state(name: str) -> bool:
    """Whether a group is the state of a copy: it has offsets, and neither members nor a lag."""
    return name.startswith(COPY_STATE)


def _of_copy(group: LagByTopic) -> LagByTopic:
    topics = {name: TopicLag(each.members, None, None, None) for name, each in group.topics.items()}
    return LagByTopic(replace(group.summary, lag=None, behind_seconds=None), topics)


def _by_coordinator(
    listings: Iterable[GroupListing],
) -> Iterable[tuple[ClientConnection, list[GroupListing]]]:
    coordinated: dict[ClientConnection, list[GroupListing]] = {}
    for each in listings:
        coordinated.setdefault(each.coordinator, []).append(each)
    return coordinated.items()


async def _lags(connection: ClientConnection, listings: Sequence[GroupListing]) -> list[LagByTopic]:
    names = [each.group for each in listings]
    if connection.has(quafka.DescribeGroupLagRequest):
        request = quafka.DescribeGroupLagRequest(groups=names)
        answer = await connection.call(request, quafka.DescribeGroupLagResponse)
        kinds = {each.group: each.kind for each in listings}
        known = [each for each in answer.groups if not each.error_code]
        shares = [each.group_id for each in known if kinds[each.group_id] == _SHARE]
        lags = await lag_of_shares(connection, shares) if shares else {}
        return [
            _share_lag(each, lags.get(each.group_id))
            if kinds[each.group_id] == _SHARE
            else LagByTopic(_summary(each, kinds[each.group_id]), _topic_lags(each))
            for each in known
        ]
    described = (
        await connection.call(DescribeGroupsRequest(groups=names), DescribeGroupsResponse)
    ).groups
    return [
        LagByTopic(
            GroupSummary(
                each.group_id, each.group_state, each.protocol_type, len(each.members), None, None
            ),
            {},
        )
        for each in described
        if not each.error_code
    ]


def _summary(group: quafka.DescribedGroupLag, kind: str) -> GroupSummary:
    partitions = [each for topic in group.topics for each in topic.partitions]
    return GroupSummary(
        group.group_id,
        group.group_state,
        group.protocol_type,
        len(group.members),
        sum_of_known(known_number(each.lag) for each in partitions),
        largest_if_known(known_seconds(each.behind_ms) for each in partitions if each.lag),
        kind,
    )


def _share_lag(group: quafka.DescribedGroupLag, lags: dict[str, int | None] | None) -> LagByTopic:
    found = _summary(group, _SHARE)
    total = found.lag if lags is None else sum_of_known(lags.values())
    topics = {name: TopicLag(None, lag, None, None) for name, lag in (lags or {}).items()}
    return LagByTopic(replace(found, lag=total, behind_seconds=None), topics)


def _topic_lags(group: quafka.DescribedGroupLag) -> dict[str, TopicLag]:
    found: dict[str, TopicLag] = {}
    for topic in group.topics:
        behind = [each for each in topic.partitions if each.lag]
        found[topic.name] = TopicLag(
            len({each.member_id for each in topic.partitions if each.member_id}),
            sum_of_known(known_number(each.lag) for each in topic.partitions),
            largest_if_known(known_seconds(each.behind_ms) for each in behind),
            largest_if_known(known_seconds(each.catch_up_ms) for each in behind),
        )
    return found


# --- progress of KIP-848 groups -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moving:
    """A KIP-848 group: its number of members by protocol, and the ids of late members.

    A member is late until it has taken up the group's last assignment.
    """

    group: str
    consumers: int
    classic: int
    late: list[str]


async def moving(listings: Sequence[GroupListing]) -> list[Moving]:
    """How far the members of these KIP-848 groups have followed. Raises ClientError."""
    found: list[Moving] = []
    for connection, its in _by_coordinator(listings):
        for at in range(0, len(its), _GROUPS_AT_ONCE):
            names = [each.group for each in its[at : at + _GROUPS_AT_ONCE]]
            request = ConsumerGroupDescribeRequest(group_ids=names)
            answer = await connection.call(request, ConsumerGroupDescribeResponse)
            found += [_moving(group) for group in answer.groups if not group.error_code]
    return found


def _moving(group: DescribedConsumerGroup) -> Moving:
    members = group.members
    classic = sum(each.member_type == _CLASSIC_MEMBER for each in members)
    late = [
        each.member_id
        for each in members
        if group.group_state == "Reconciling" and each.member_epoch < group.assignment_epoch
    ]
    return Moving(group.group_id, len(members) - classic, classic, late)


# --- describe ---------------------------------------------------------------------------------


async def describe(cluster: ClientCluster, name: str) -> GroupDetails:
    """A group with its members and its lag. Raises ClientError."""
    connection = await cluster.coordinator(name)
    shares = await _share_group(cluster, connection, name)
    if shares is not None:
        return shares
    group = await _consumer_group(connection, name) or await _classic_group(connection, name)
    members = group.members
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
    if group.state == "Dead" and not lags:
        check(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r}")
    by_id = {member.member_id: member for member in members}
    lags = [_owned(lag, by_id) for lag in lags]
    if keeps_copy_state(name):
        lags = [ShownPartitionLag(lag.topic, lag.partition, lag.committed_offset) for lag in lags]
    behind = [lag for lag in lags if lag.lag]
    return replace(
        group,
        lag=sum_of_known(lag.lag for lag in lags),
        behind_seconds=largest_if_known(lag.behind_seconds for lag in behind or lags),
        catch_up_seconds=largest_if_known(lag.catch_up_seconds for lag in behind or lags),
        timed=timed,
        partitions=lags,
        uncommitted=await _uncommitted(cluster, lags),
    )


async def _uncommitted(cluster: ClientCluster, lags: Sequence[ShownPartitionLag]) -> int | None:
    """How many partitions of these topics have no committed offset; None: a topic is unknown."""
    names = sorted({lag.topic for lag in lags})
    topics = (await cluster.metadata(names)).topics if names else []
    if any(topic.error_code for topic in topics):
        return None
    every = {(topic.name, each.partition_index) for topic in topics for each in topic.partitions}
    committed = {(lag.topic, lag.partition) for lag in lags if lag.committed_offset is not None}
    return len(every - committed)


def _without_lag(
    name: str,
    state: str,
    protocols: tuple[str, str],
    coordinator: str,
    members: list[MemberDescription],
) -> GroupDetails:
    return GroupDetails(
        name, state, *protocols, coordinator, members, None, None, None, timed=False, partitions=[]
    )


async def _classic_group(connection: ClientConnection, name: str) -> GroupDetails:
    request = DescribeGroupsRequest(groups=[name])
    (group,) = (await connection.call(request, DescribeGroupsResponse)).groups
    check(group.error_code, f"group {name!r}")
    members = [
        MemberDescription(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            _assigned(each.member_assignment) if group.protocol_type == "consumer" else {},
        )
        for each in group.members
    ]
    protocols = (group.protocol_type, group.protocol_data)
    return _without_lag(name, group.group_state, protocols, connection.address, members)


async def _consumer_group(connection: ClientConnection, name: str) -> GroupDetails | None:
    """A group of KIP-848; None if it is of another kind, or the server has no such groups."""
    if not connection.has(ConsumerGroupDescribeRequest):
        return None
    request = ConsumerGroupDescribeRequest(group_ids=[name])
    (group,) = (await connection.call(request, ConsumerGroupDescribeResponse)).groups
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(group.error_code, f"group {name!r}")
    members = [
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            {part.topic_name: sorted(part.partitions) for part in each.assignment.topic_partitions},
            each.member_epoch,
        )
        for each in group.members
    ]
    protocols = ("consumer", group.assignor_name)
    found = _without_lag(name, group.group_state, protocols, connection.address, members)
    return replace(found, kind="consumer", epoch=group.group_epoch)


async def is_share_group(cluster: ClientCluster, name: str) -> bool:
    """Whether there is a share group of this name. Raises ClientError."""
    return await _described_shares(await cluster.coordinator(name), name) is not None


async def _described_shares(
    connection: ClientConnection, name: str
) -> share_groups.DescribedShareGroup | None:
    """The server's description of a share group; None if it is of another kind, or unknown."""
    if not connection.has(ShareGroupDescribeRequest):
        return None
    request = ShareGroupDescribeRequest(group_ids=[name])
    (group,) = (await connection.call(request, ShareGroupDescribeResponse)).groups
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(group.error_code, f"group {name!r}")
    return group


async def _share_group(
    cluster: ClientCluster, connection: ClientConnection, name: str
) -> GroupDetails | None:
    """A share group and its positions; None if it is of another kind, or unknown."""
    group = await _described_shares(connection, name)
    if group is None:
        return None
    members = [
        MemberDescription(
            each.member_id,
            None,
            each.client_id,
            each.client_host.removeprefix("/"),
            {part.topic_name: sorted(part.partitions) for part in each.assignment.topic_partitions},
            each.member_epoch,
        )
        for each in group.members
    ]
    lags = await end_offsets(cluster, await share_lags(connection, name))
    found = _without_lag(
        name, group.group_state, ("share", group.assignor_name), connection.address, members
    )
    return replace(
        found,
        kind="share",
        epoch=group.group_epoch,
        lag=sum_of_known(lag.lag for lag in lags),
        timed=True,
        partitions=lags,
    )


def _assigned(assignment: bytes) -> dict[str, list[int]]:
    try:
        return {topic: sorted(its) for topic, its in assigned_partitions(assignment).items()}
    except Malformed:
        return {}


def _owned(lag: ShownPartitionLag, members: Mapping[str, MemberDescription]) -> ShownPartitionLag:
    member = members.get(lag.member_id or "")
    return lag if member is None else replace(lag, client_id=member.client_id, host=member.host)


# --- delete -----------------------------------------------------------------------------------


async def delete(cluster: ClientCluster, names: Sequence[str]) -> dict[str, str | None]:
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
