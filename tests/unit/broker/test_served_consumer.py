"""Groups of KIP-848 at the coordinator: what is durable, what it asks for, and who is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.consumer.facts import TOPICS
from quafka_broker.groups.group import GroupType
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.served_consumer import ServedConsumerGroup
from quafka_broker.ops import (
    consumer_groups,
    group_admin,
    group_lag,
    groups,
    offsets,
    partitions,
    share_groups,
    transactions,
)
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.admin import CreatePartitions
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResp,
    DescribeConsumerGroups,
    KnownTopic,
)
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffset,
    CommitOffsets,
    CommittedOffsets,
    CommittedQuestion,
    DeleteOffsets,
)
from quafka_mesh_ops.ops.groups import (
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    ListGroups,
    SyncGroup,
)
from quafka_mesh_ops.ops.lag import GroupLag
from quafka_mesh_ops.ops.share_groups import (
    CreateShareGroup,
    ForgetShareTopics,
    ShareGroupTopics,
    ShareHeartbeat,
)
from quafka_mesh_ops.ops.transactions import CommitTxnOffsets
from quafka_proto.consumer_protocol import assigned_partitions, assignment_of
from quafka_proto.errors import ErrorCode as E
from quafka_proto.schema.consumer_groups import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    DescribedConsumerGroup,
)
from quafka_proto.schema.groups import JoinGroupRequestProtocol, SyncGroupRequestAssignment
from tests.unit.broker.consumer_groups.test_facts import MEMBER
from tests.unit.broker.consumer_groups.test_facts import TOPICS as WRITTEN_TOPICS
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state
from tests.unit.broker.transactional import Sender

JOIN = ConsumerHeartbeat(
    "g", "m", 0, rebalance_timeout_ms=60_000, topics=["t"], owned=[], is_whole=True
)


async def beat(
    state: BrokerState, op: ConsumerHeartbeat = JOIN, **changes: Any
) -> ConsumerHeartbeatResp:
    return await consumer_groups.heartbeat(state, context(), replace(op, **changes))


async def owned(state: BrokerState, member: str = "m", **changes: Any) -> set[int]:
    """Join, and what the member gets."""
    answer = await beat(state, member_id=member, **changes)
    assert not answer.error_code, answer
    return {number for part in answer.assignment or [] for number in part.partitions}


async def described(state: BrokerState, group: str = "g") -> DescribedConsumerGroup:
    op = DescribeConsumerGroups([group])
    (found,) = (await consumer_groups.describe(state, context(), op)).groups
    found.members.sort(key=lambda each: each.member_id)
    return found


def idle(member: str, epoch: int, group: str = "g") -> ConsumerHeartbeat:
    return ConsumerHeartbeat(group, member, epoch, is_whole=True)


async def commit(state: BrokerState, member: str, epoch: int, *, knows: bool = True) -> int:
    op = CommitOffsets("g", epoch, member, "", [CommitOffset("t", 0, 5)], knows)
    return (await offsets.commit(state, context(), op)).partitions[0]


async def test_members_keep_epochs_and_partitions_through_restarts() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 4)
        state.groups.journal.facts_kept = 5
        assert await owned(state, "a") == {0, 1, 2, 3}
        assert await owned(state, "b") == set()
        for _ in range(30):  # facts are restated meanwhile
            epoch = (await described(state)).group_epoch
            await beat(state, idle("a", epoch), topics=["t"], owned=[])
            await beat(state, member_id="c")
            await beat(state, idle("c", -1))
        before = await described(state)
        assert [each.member_id for each in before.members] == ["a", "b"]
        assert before.group_epoch > 60
    for _ in range(2):
        async with running_state(disk, lease_seconds=0) as state:
            assert await described(state) == before
            await state.log.checkpoint()
    async with running_state(disk, lease_seconds=0) as state:
        usage = state.groups.usage(ORG)
        assert usage.members == 2
        fenced = await beat(state, idle("b", before.group_epoch + 1))
        assert fenced.error_code == E.FENCED_MEMBER_EPOCH
        assert (await beat(state, idle("nobody", 1))).error_code == E.UNKNOWN_MEMBER_ID
        for member in ("a", "b"):
            await beat(state, idle(member, -1))
        assert (usage.members, usage.member_bytes) == (0, 0)
        delete = DeleteGroups(["g"])
        assert (await group_admin.delete(state, context(), delete)).groups == [0]
        assert usage.groups == 0
    async with running_state(disk, lease_seconds=0) as state:
        assert (await described(state)).error_code == E.GROUP_ID_NOT_FOUND


async def test_facts_as_first_written_are_read_at_a_start() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        own = {"epoch": 5, "assignment_epoch": 5, "since_ms": 3}
        event: dict[str, Any] = {
            "event": "group_members", "org": ORG, "group": "g", "kind": "consumer", "born_ms": 1,
            "own": own, "members": [["m", MEMBER], [TOPICS, WRITTEN_TOPICS]], "gone": [],
        }  # fmt: skip
        await state.groups.journal.append(event)
    for _ in range(2):
        async with running_state(disk, lease_seconds=0) as state:
            found = await described(state)
            (member,) = found.members
            assert (found.group_epoch, member.member_epoch) == (5, 5)
            assert member.subscribed_topic_names == ["a", "b"]
            assert [part.topic_name for part in member.assignment.topic_partitions] == ["t"]
            await state.log.checkpoint()


async def test_topics_that_change_reach_the_members() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        assert await owned(state) == {0, 1}
        entry = state.groups.find(ORG, "g")
        assert entry is not None
        settled = (await described(state)).group_epoch
        still = Heartbeat("g", settled, "m")
        assert not (await groups.heartbeat(state, context(), still)).error_code
        await state.topics.change(topic, lambda it: replace(it, partitions=3))
        while (await described(state)).group_epoch == settled:
            await asyncio.sleep(0.01)
        assert (await groups.heartbeat(state, context(), still)).error_code
        answer = await beat(state, idle("m", settled))
        assert [part.partitions for part in answer.assignment or []] == [[0, 1, 2]]
        assert entry.group.owners() == {("t", number): "m" for number in range(3)}
        assert entry.group.subscribed() == {"t"}


async def test_topics_of_other_brokers_are_asked_for() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        join = replace(JOIN, topics=["t", "there", "away"], is_whole=False)
        asks = await beat(state, join)
        assert (asks.asks, asks.error_code) == (["away", "there"], 0)
        assert state.groups.find(ORG, "g") is None
        known = [KnownTopic("there", b"x" * 16, 2)]
        answer = await beat(state, join, known=known)
        assert sum(len(part.partitions) for part in answer.assignment or []) == 3
        # The broker of "away" is unavailable: it is asked for again after a while.
        assert not (await beat(state, idle("m", answer.member_epoch), is_whole=False)).asks
        # A topic that cannot be reached is unchanged; one that is gone is not.
        entry = state.groups.find(ORG, "g")
        assert entry is not None
        assert isinstance(entry.group, ServedConsumerGroup)
        stay = replace(idle("m", answer.member_epoch), is_whole=False)
        later = asyncio.get_running_loop().time() + 60
        assert entry.group.topics.asks(stay, later) is not None
        assert await beat(state, stay, known=[]) == replace(answer, assignment=None)
        gone = await beat(state, stay, known=[KnownTopic("there")])
        assert gone.assignment is not None
        assert sum(len(part.partitions) for part in gone.assignment) == 1


async def test_patterns_are_resolved_by_the_gateway() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1)
        join = replace(JOIN, topics=None, pattern="t.*")
        assert (await beat(state, join)).asks_pattern == "t.*"
        answer = await beat(state, join, matched=["t"])
        assert sum(len(part.partitions) for part in answer.assignment or []) == 1
        # After a restart it is resolved again: topics may have come.
    async with running_state(disk) as state:
        stay = idle("m", answer.member_epoch)
        assert (await groups.heartbeat(state, context(), Heartbeat("g", 2, "m"))).error_code
        assert (await beat(state, stay)).asks_pattern == "t.*"
        assert (await beat(state, stay, matched=["t"])).member_epoch == answer.member_epoch
        still = Heartbeat("g", answer.member_epoch, "m")
        assert not (await groups.heartbeat(state, context(), still)).error_code
        assert (await beat(state, stay, matched=[])).assignment == []


async def test_commits_need_the_members_epoch() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        epoch = (await beat(state)).member_epoch
        assert await commit(state, "m", epoch) == 0
        assert await commit(state, "m", epoch + 1) == E.STALE_MEMBER_EPOCH
        assert await commit(state, "nobody", epoch) == E.UNKNOWN_MEMBER_ID
        assert await commit(state, "", -1) == E.UNKNOWN_MEMBER_ID
        assert await commit(state, "m", epoch, knows=False) == E.UNSUPPORTED_VERSION
        questions = [CommittedQuestion("t", [0])]
        for member, at, error in (
            (None, -1, 0), ("m", epoch, 0), ("m", epoch + 1, E.STALE_MEMBER_EPOCH),
            ("x", epoch, E.UNKNOWN_MEMBER_ID),
        ):  # fmt: skip
            op = CommittedOffsets("g", questions, False, member, at)
            found = await offsets.committed(state, context(), op)
            assert found.error_code == error
            assert [each.offset for each in found.offsets] == ([] if error else [5])
        delete = DeleteOffsets("g", questions)
        deleted = await group_admin.delete_offsets(state, context(), delete)
        assert deleted.partitions == [E.GROUP_SUBSCRIBED_TO_TOPIC]
        assert (await group_admin.delete(state, context(), DeleteGroups(["g"]))).groups == [
            E.NON_EMPTY_GROUP
        ]
        (lag,) = (await group_lag.handle(state, context(), GroupLag(["g"]))).groups
        assert (lag.state, lag.protocol, len(lag.members or [])) == ("Stable", "uniform", 1)
        assert [each.member_id for each in lag.partitions or []] == ["m"]


async def test_groups_of_other_kinds() -> None:
    """Kafka's errors; an empty group becomes one of the other kind."""
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        await beat(state)
        join = JoinGroup(
            "g", "", "", "consumer", [JoinGroupRequestProtocol("range", b"")], 10_000, 10_000
        )
        answer = await groups.join(state, context(), join)
        assert answer.error_code == E.INCONSISTENT_GROUP_PROTOCOL
        sync = SyncGroup("g", 1, "m", "", [])
        assert (await groups.sync(state, context(), sync)).error_code == E.UNKNOWN_MEMBER_ID
        question = DescribeGroups(["g", "nobody"])
        found, nobody = (await group_admin.describe(state, context(), question)).groups
        assert (found.error_code, found.protocol_type) == (E.GROUP_ID_NOT_FOUND, "consumer")
        assert (nobody.error_code, nobody.protocol_type) == (E.GROUP_ID_NOT_FOUND, "")
        for kinds, names in ((["Consumer"], ["g"]), (["classic"], []), ([], ["g"])):
            op = ListGroups([], kinds)
            listed = (await group_admin.list_groups(state, context(), op)).groups
            assert [each.group_id for each in listed] == names
        await beat(state, idle("m", -1))
        async with asyncio.timeout(5):
            state.groups.limits = GroupLimits(initial_delay=0)
            assert not (await groups.join(state, context(), join)).error_code
        entry = state.groups.find(ORG, "g")
        assert entry is not None
        assert isinstance(entry.group, ClassicGroup)
        assert (await beat(state)).error_code == E.GROUP_ID_NOT_FOUND
        entry.group.expel(0.0)
        assert not (await beat(state)).error_code


def classic_join(member: str = "", owned: dict[str, list[int]] | None = None) -> JoinGroup:
    """With metadata of version 1: a topic, no user data, and the partitions that it has."""
    metadata = b"\0\1\0\0\0\1\0\1t" + b"\xff" * 4 + assignment_of(1, owned or {})[2:-4]
    protocols = [JoinGroupRequestProtocol("cooperative-sticky", metadata)]
    return JoinGroup("g", member, "", "consumer", protocols, 10_000, 10_000)


async def synced(state: BrokerState, member: str, generation: int) -> dict[str, list[int]]:
    answer = await groups.sync(state, context(), SyncGroup("g", generation, member, "", []))
    assert not answer.error_code, E(answer.error_code)
    return assigned_partitions(answer.assignment)


async def test_a_group_moves_to_the_new_protocol_and_back() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        state.groups.limits = GroupLimits(initial_delay=0)
        await state.topics.create(ORG, "t", 4)
        old = await groups.join(state, context(), classic_join())
        shares = [SyncGroupRequestAssignment(old.member_id, assignment_of(1, {"t": range(4)}))]
        sync = SyncGroup("g", old.generation, old.member_id, "", shares)
        assert not (await groups.sync(state, context(), sync)).error_code
        # A consumer of the new protocol joins: the classic member keeps what it has until it
        # has given up its part.
        assert await owned(state, "new") == set()
        found = await described(state)
        assert {each.member_id: each.member_type for each in found.members} == {
            old.member_id: CLASSIC_MEMBER, "new": CONSUMER_MEMBER,
        }  # fmt: skip
        alive = Heartbeat("g", old.generation, old.member_id)
        told = await groups.heartbeat(state, context(), alive)
        assert told.error_code == E.REBALANCE_IN_PROGRESS
        again = await groups.join(
            state, context(), classic_join(old.member_id, {"t": [0, 1, 2, 3]})
        )
        kept = await synced(state, old.member_id, again.generation)
        assert len(kept["t"]) == 2
        again = await groups.join(state, context(), classic_join(old.member_id, kept))
        assert await synced(state, old.member_id, again.generation) == kept
        alive = Heartbeat("g", again.generation, old.member_id)
        assert not (await groups.heartbeat(state, context(), alive)).error_code
        answer = await beat(state, idle("new", (await described(state)).group_epoch))
        others = {number for part in answer.assignment or [] for number in part.partitions}
        assert others | set(kept["t"]) == set(range(4))
    async with running_state(disk) as state:
        assert not (await groups.heartbeat(state, context(), alive)).error_code
        # The last consumer of the new protocol leaves: the members rebalance as a classic group.
        assert not (await beat(state, idle("new", -1))).error_code
        entry = state.groups.find(ORG, "g")
        assert entry is not None
        assert isinstance(entry.group, ClassicGroup)
        assert state.groups.usage(ORG).members == 1
        told = await groups.heartbeat(state, context(), alive)
        assert told.error_code in (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION)
        last = await groups.join(state, context(), classic_join(old.member_id))
        assert (last.error_code, last.leader) == (0, old.member_id)
    async with running_state(disk) as state:
        entry = state.groups.find(ORG, "g")
        assert entry is not None
        assert [each.id for each in entry.group.every_member()] == [old.member_id]


async def test_a_group_moves_only_when_the_topics_of_its_members_are_known() -> None:
    """Otherwise a consumer would get partitions of another broker's topic that a member has."""
    disk = MemoryDisk()
    async with running_state(disk) as state:
        state.groups.limits = GroupLimits(initial_delay=0)
        old = await groups.join(state, context(), classic_join())
        shares = [SyncGroupRequestAssignment(old.member_id, assignment_of(1, {"t": range(4)}))]
        sync = SyncGroup("g", old.generation, old.member_id, "", shares)
        assert not (await groups.sync(state, context(), sync)).error_code
        join = replace(JOIN, member_id="new", topics=["t", "u"], is_whole=False)
        assert (await beat(state, join)).asks == ["t", "u"]
        refused = await beat(state, join, known=[])
        assert refused.error_code == E.COORDINATOR_LOAD_IN_PROGRESS, "its broker is unavailable"
        known = [KnownTopic("t", b"t" * 16, 4), KnownTopic("u", b"u" * 16, 1)]
        answer = await beat(state, join, known=known)
        assert [part.topic_id for part in answer.assignment or []] == [b"u" * 16]
        found = {each.member_id: each for each in (await described(state)).members}
        assert found[old.member_id].assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
        still = classic_join(old.member_id, {"t": [0, 1, 2, 3]})
        assert not (await groups.join(state, context(), still)).error_code
    async with running_state(disk) as state:
        # The group knows the topic after a restart, though the coordinator does not: the member
        # still has all of its partitions.
        assert not (await groups.join(state, context(), still)).error_code
        epoch = (await described(state)).group_epoch
        answer = await beat(state, idle("new", epoch), is_whole=False, known=known)
        held = {part.topic_id for part in answer.assignment or []}
        assert held <= {b"u" * 16}


async def test_classic_members_of_a_group_have_a_protocol_in_common() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 4)
        await beat(state)
        first = await groups.join(state, context(), classic_join())
        assert not first.error_code
        (protocol,) = classic_join().protocols
        other = replace(
            classic_join(), protocols=[JoinGroupRequestProtocol("range", protocol.metadata)]
        )
        refused = await groups.join(state, context(), other)
        assert refused.error_code == E.INCONSISTENT_GROUP_PROTOCOL
        # The only member may change its protocols.
        again = await groups.join(state, context(), replace(other, member_id=first.member_id))
        assert not again.error_code


async def test_a_share_group_has_no_offsets() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        share = ShareHeartbeat("g", "m", 0, topics=["t"], is_whole=True)
        assert not (await share_groups.heartbeat(state, context(), share)).error_code
        question = CommittedQuestion("t", [0])
        found = await offsets.committed(state, context(), CommittedOffsets("g", [question]))
        assert (found.error_code, [each.offset for each in found.offsets]) == (0, [-1])
        delete = DeleteOffsets("g", [question])
        unknown = E.GROUP_ID_NOT_FOUND
        assert (await group_admin.delete_offsets(state, context(), delete)).error_code == unknown
        rows = [CommitOffset("t", 0, 1)]
        commit = CommitOffsets("g", -1, "", "", rows)
        assert (await offsets.commit(state, context(), commit)).partitions == [unknown]
        sender = Sender(state)
        await sender.init()
        producer = CommitTxnOffsets(sender.producer, "g", -1, "", "", rows, False)
        answer = await transactions.commit_offsets(state, context(), producer)
        assert answer.partitions == [unknown]


async def test_a_share_group_is_created_without_members() -> None:
    disk, create = MemoryDisk(), CreateShareGroup("g")
    async with running_state(disk) as state:
        for _ in range(2):
            assert not (await share_groups.create(state, context(), create)).error_code
    async with running_state(disk) as state:
        entry = state.groups.find(ORG, "g")
        assert entry is not None
        assert (entry.group.kind, entry.group.state) == ("share", "Empty")
        await state.topics.create(ORG, "t", 1)
        share = ShareHeartbeat("g", "m", 0, topics=["t"], is_whole=True)
        assert not (await share_groups.heartbeat(state, context(), share)).error_code
        refused = await share_groups.create(state, context(), create)
        assert refused.error_code == E.NON_EMPTY_GROUP
        await beat(state, group="other")
        refused = await share_groups.create(state, context(), CreateShareGroup("other"))
        assert refused.error_code == E.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("empty", [False, True])
async def test_a_share_group_knows_which_partitions_are_new_to_it(empty: bool) -> None:
    disk = MemoryDisk()
    share = ShareHeartbeat("g", "m", 0, topics=["t"], is_whole=True)
    async with running_state(disk, lease_seconds=0) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        question = ShareGroupTopics("g", [topic.uuid, bytes(16)])
        assert (await share_groups.topics(state, context(), question)).first_partitions == [-1, -1]
        assert not (await share_groups.heartbeat(state, context(), share)).error_code
        if empty:
            leaving = replace(share, member_epoch=-1, topics=None)
            assert not (await share_groups.heartbeat(state, context(), leaving)).error_code
    async with running_state(disk, lease_seconds=0) as state:
        assert not (await partitions.create(state, context(), CreatePartitions("t", 2))).error_code
        if empty:
            assert not (await share_groups.heartbeat(state, context(), share)).error_code
        assert (await share_groups.topics(state, context(), question)).first_partitions == [1, -1]
        forget = ForgetShareTopics("g", [topic.uuid])
        refused = await share_groups.forget(state, context(), forget)
        assert refused.error_code == E.NON_EMPTY_GROUP
        leaving = replace(share, member_epoch=-1, topics=None)
        assert not (await share_groups.heartbeat(state, context(), leaving)).error_code
        assert not (await share_groups.forget(state, context(), forget)).error_code
        unknown = await share_groups.forget(state, context(), replace(forget, group="other"))
        assert unknown.error_code == E.GROUP_ID_NOT_FOUND
    async with running_state(disk, lease_seconds=0) as state:
        assert (await share_groups.topics(state, context(), question)).first_partitions == [-1, -1]
        assert not (await share_groups.heartbeat(state, context(), share)).error_code
        assert (await share_groups.topics(state, context(), question)).first_partitions == [2, -1]


POLICIES = pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled"])


def set_policy(state: BrokerState, policy: str) -> None:
    state.groups.limits = GroupLimits(initial_delay=0, migration=policy)


def kind(state: BrokerState) -> GroupType:
    entry = state.groups.find(ORG, "g")
    assert entry is not None
    return entry.group.kind


async def test_a_share_group_learns_the_topics_whose_offsets_are_set() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        learns = CreateShareGroup("g", [KnownTopic("t", topic.uuid, 1)])
        assert not (await share_groups.create(state, context(), learns)).error_code
        later = CreateShareGroup("g", [KnownTopic("t", topic.uuid, 7)])
        assert not (await share_groups.create(state, context(), later)).error_code
    async with running_state(disk, lease_seconds=0) as state:
        assert not (await partitions.create(state, context(), CreatePartitions("t", 2))).error_code
        share = ShareHeartbeat("g", "m", 0, topics=["t"], is_whole=True)
        assert not (await share_groups.heartbeat(state, context(), share)).error_code
        question = ShareGroupTopics("g", [topic.uuid])
        assert (await share_groups.topics(state, context(), question)).first_partitions == [1]


@POLICIES
async def test_a_consumer_joins_classic_members_by_the_policy(policy: str) -> None:
    async with running_state(MemoryDisk()) as state:
        set_policy(state, policy)
        await state.topics.create(ORG, "t", 1)
        await groups.join(state, context(), classic_join())
        upgrades = policy in ("bidirectional", "upgrade")
        assert (await beat(state)).error_code == (0 if upgrades else E.GROUP_ID_NOT_FOUND)
        assert kind(state) is (GroupType.CONSUMER if upgrades else GroupType.CLASSIC)


@POLICIES
async def test_a_classic_member_joins_consumers_by_the_policy(policy: str) -> None:
    async with running_state(MemoryDisk()) as state:
        set_policy(state, policy)
        await state.topics.create(ORG, "t", 1)
        await owned(state)
        refused = policy == "disabled"
        answer = await groups.join(state, context(), classic_join())
        assert answer.error_code == (E.INCONSISTENT_GROUP_PROTOCOL if refused else 0)
        assert kind(state) is GroupType.CONSUMER
        assert len((await described(state)).members) == 2 - refused


@pytest.mark.parametrize(
    "metadata", [b"\xff\xff\0\0\0\1\0\1t" + b"\xff" * 4, b"\0\1\0\0\0\1\0\1t\0\0\0\x09x"]
)
async def test_a_classic_member_with_malformed_metadata_does_not_join(metadata: bytes) -> None:
    async with running_state(MemoryDisk()) as state:
        set_policy(state, "bidirectional")
        await state.topics.create(ORG, "t", 1)
        await owned(state)
        join = replace(classic_join(), protocols=[JoinGroupRequestProtocol("range", metadata)])
        answer = await groups.join(state, context(), join)
        assert answer.error_code == E.INCONSISTENT_GROUP_PROTOCOL
        assert [each.member_id for each in (await described(state)).members] == ["m"]


async def test_an_assignment_has_a_version_that_is_known() -> None:
    async with running_state(MemoryDisk()) as state:
        set_policy(state, "bidirectional")
        await state.topics.create(ORG, "t", 2)
        await owned(state)
        metadata = b"\x7f\xff\0\0\0\1\0\1t" + b"\xff" * 4 + bytes(4) + b"\xff" * 6
        join = replace(classic_join(), protocols=[JoinGroupRequestProtocol("range", metadata)])
        answer = await groups.join(state, context(), join)
        sync = SyncGroup("g", answer.generation, answer.member_id, "", [])
        synced_ = await groups.sync(state, context(), sync)
        assert (synced_.error_code, synced_.assignment[:2]) == (0, b"\0\3")


@pytest.mark.parametrize("how", ["leaves", "expires", "is replaced"])
@POLICIES
async def test_a_group_without_consumers_is_classic_by_the_policy(policy: str, how: str) -> None:
    async with running_state(MemoryDisk(), lease_seconds=0) as state:
        set_policy(state, "bidirectional")
        await state.topics.create(ORG, "t", 1)
        await owned(state, instance_id="i")
        old = replace(classic_join(), session_timeout_ms=1_000_000)
        assert not (await groups.join(state, context(), old)).error_code
        set_policy(state, policy)
        error = 0
        if how == "leaves":
            await beat(state, ConsumerHeartbeat("g", "m", -1, "i", is_whole=True))
        elif how == "expires":
            await asyncio.sleep(60)
        else:
            error = (await groups.join(state, context(), replace(old, instance_id="i"))).error_code
        refused = policy == "disabled" and how == "is replaced"
        assert error == (E.INCONSISTENT_GROUP_PROTOCOL if refused else 0)
        is_classic = policy in ("bidirectional", "downgrade")
        assert kind(state) is (GroupType.CLASSIC if is_classic else GroupType.CONSUMER)


@POLICIES
async def test_an_empty_group_takes_the_protocol_of_the_next_member(policy: str) -> None:
    async with running_state(MemoryDisk()) as state:
        set_policy(state, policy)
        await state.topics.create(ORG, "t", 1)
        for _ in range(2):
            await owned(state)
            assert kind(state) is GroupType.CONSUMER
            await beat(state, idle("m", -1))
            answer = await groups.join(state, context(), classic_join())
            assert (answer.error_code, kind(state)) == (0, GroupType.CLASSIC)
            leave = LeaveGroup("g", [Leaver(answer.member_id)])
            assert not (await groups.leave(state, context(), leave)).error_code


async def test_limits_of_the_org_hold() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        for limits, group in (
            (GroupLimits(org_members=1), "g"),
            (GroupLimits(org_bytes=3_500), "g"),
            (GroupLimits(max_bytes=3_500), "g"),
            (GroupLimits(org_groups=1), "h"),
        ):
            state.groups.limits = GroupLimits()
            assert not (await beat(state)).error_code
            state.groups.limits = limits
            state.groups._most_groups = lambda _org: state.groups.limits.org_groups
            refused = await beat(state, member_id="other", group=group)
            assert refused.error_code == E.GROUP_MAX_SIZE_REACHED
            await beat(state, idle("m", -1))
        assert (await beat(state, group="")).error_code == E.INVALID_REQUEST
        state.groups.limits = GroupLimits(member_topics=2)
        many = ["a", "b", "c"]
        for op in (replace(JOIN, topics=many), replace(JOIN, pattern=".*", matched=many)):
            assert (await beat(state, op)).error_code == E.INVALID_REQUEST
        assert (await beat(state, idle("m", 3, "none"))).error_code == E.GROUP_ID_NOT_FOUND
        state.groups.drain()
        assert (await beat(state)).error_code == E.NOT_COORDINATOR


async def test_a_log_that_refuses_writes_is_asked_again_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 1)
        await owned(state)
        disk.sync_fails = True
        refused = 0
        append = state.groups.journal.append

        def counted(*arguments: Any) -> Any:
            nonlocal refused
            refused += 1
            return append(*arguments)

        monkeypatch.setattr(state.groups.journal, "append", counted)
        await asyncio.sleep(60)  # the session of the member ends after 45 s
        assert 10 <= refused <= 20
