"""Offsets in topics of other brokers; and those in topics that nobody reads any more."""

from __future__ import annotations

import struct
from dataclasses import replace

from quafka_broker.ops import groups, offsets
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffset,
    CommitOffsets,
    CommittedOffsets,
    CommittedQuestion,
    ForgetTopic,
)
from quafka_mesh_ops.ops.groups import JoinGroup, SyncGroup
from quafka_proto.schema.groups import JoinGroupRequestProtocol, SyncGroupRequestAssignment
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

OLD, NEW = b"o" * 16, b"n" * 16


async def commit(state: BrokerState, group: str, *parts: CommitOffset) -> list[int]:
    op = CommitOffsets(group, -1, "", "", list(parts))
    return (await offsets.commit(state, context(), op)).partitions


async def committed(
    state: BrokerState, group: str, *questions: CommittedQuestion
) -> list[tuple[str, bytes, int]]:
    op = CommittedOffsets(group, list(questions) or None)
    found = (await offsets.committed(state, context(), op)).offsets
    return [(each.topic, each.topic_id, each.offset) for each in found]


async def test_they_are_told_apart_by_the_topics_id() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        own, _ = await state.topics.create(ORG, "own", 1)
        state.groups.journal.facts_kept = 10
        for offset in range(50):
            there = CommitOffset("t", 7, offset, topic_id=OLD, elsewhere=True)
            assert await commit(state, "g", there, CommitOffset("own", 0, offset)) == [0, 0]
    async with running_state(disk, lease_seconds=0) as state:
        assert await committed(state, "g") == [("own", own.uuid, 49), ("t", OLD, 49)]
        old = CommittedQuestion("t", [7], OLD, elsewhere=True)
        new = CommittedQuestion("t", [7], NEW, elsewhere=True)
        unknown = CommittedQuestion("t", [7], elsewhere=True)
        assert await committed(state, "g", old, new, unknown) == [
            ("t", OLD, 49), ("t", NEW, -1), ("t", b"", -1),
        ]  # fmt: skip
        # One of this broker's own that has the same name, by another table, is another topic.
        mine, _ = await state.topics.create(ORG, "t", 8)
        assert await committed(state, "g", CommittedQuestion("t", [7])) == [("t", mine.uuid, -1)]
        await state.topics.delete(mine)
        assert await committed(state, "g", old) == [("t", OLD, 49)]


async def test_a_topic_that_is_gone_takes_every_groups_offsets_with_it() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        for group in ("a", "b"):
            await commit(state, group, CommitOffset("t", 0, 1, topic_id=OLD, elsewhere=True))
        await commit(state, "c", CommitOffset("t", 0, 2, topic_id=NEW, elsewhere=True))
        answer = await offsets.delete_topic_offsets(state, context(), ForgetTopic("t", OLD))
        assert answer.error_code == 0
    async with running_state(disk, lease_seconds=0) as state:
        assert [await committed(state, group) for group in "abc"] == [[], [], [("t", NEW, 2)]]


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


async def test_what_no_member_is_subscribed_to_any_more_expires() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        state.groups.limits = replace(state.groups.limits, initial_delay=0.0)
        now = 1_000
        state.groups.now_ms = lambda: now
        for topic in ("read", "left", "lately"):
            await state.topics.create(ORG, topic, 1)
        known = [JoinGroupRequestProtocol("range", subscription("read"))]
        join = JoinGroup("g", "", "", "consumer", known, 10_000, 10_000)
        member = (await groups.join(state, context(), join)).member_id
        sync = SyncGroup("g", 1, member, "", [SyncGroupRequestAssignment(member, b"all")])
        assert (await groups.sync(state, context(), sync)).error_code == 0
        parts = [CommitOffset(topic, 0, 1) for topic in ("read", "left")]
        await offsets.commit(state, context(), CommitOffsets("g", 1, member, "", parts))
        now = 2_000
        late = CommitOffsets("g", 1, member, "", [CommitOffset("lately", 0, 1)])
        await offsets.commit(state, context(), late)
        assert await state.groups.expire(500) == 1
        assert [topic for topic, *_ in await committed(state, "g")] == ["lately", "read"]
        # Who cannot be understood may be reading anything.
        other = JoinGroup(
            "g", member, "", "consumer", [JoinGroupRequestProtocol("range", b"?")], 10_000, 10_000
        )
        generation = (await groups.join(state, context(), other)).generation
        now = 9_000
        assert await state.groups.expire(500) == 0, "it is in between"
        sync = SyncGroup("g", generation, member, "", [SyncGroupRequestAssignment(member, b"all")])
        assert (await groups.sync(state, context(), sync)).error_code == 0
        assert await state.groups.expire(500) == 0
    async with running_state(disk, lease_seconds=0) as state:
        assert [topic for topic, *_ in await committed(state, "g")] == ["lately", "read"]
