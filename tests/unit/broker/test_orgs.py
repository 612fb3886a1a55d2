"""Orgs with limits of their own, and what is left of a deleted one: nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from quafka_broker.ops import security as ops
from quafka_broker.ops import topics as topic_ops
from quafka_broker.ops.partitions import create as create_partitions
from quafka_broker.shard.org_removal import remove_org, run_org_removal
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.admin import CreatePartitions
from quafka_mesh_ops.ops.group_offsets import CommitOffset
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_mesh_ops.ops.security import AlterOrg, AlterOrgResp
from quafka_mesh_ops.ops.topics import CreateTopic
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quafka import OrgLimit
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.test_group_bounds import commit, first_join, joined
from tests.unit.broker.test_security import alter_users, create_acls, rule, shown, user, watch
from tests.unit.broker.tools import batch_of, context, running_state
from tests.unit.broker.transactional import Sender, call

FULL = ErrorCode.POLICY_VIOLATION


async def limit(state: BrokerState, **limits: float) -> None:
    named = [OrgLimit(name.replace("_", "."), value) for name, value in limits.items()]
    op = AlterOrg(1, "red", "", named, create=1 not in state.security.table.orgs)
    assert not (await ops.alter_org(state, context(), op)).error_code


async def delete(state: BrokerState, org: int = 1) -> AlterOrgResp:
    return await ops.alter_org(state, context(), AlterOrg(org, "", "deleting", None))


async def create(state: BrokerState, name: str, partitions: int = 1, org: int = 1) -> int:
    answer = await topic_ops.create(state, context(org), CreateTopic(name, partitions))
    return answer.error_code


async def produce(state: BrokerState, size: int = 10, topic: str = "t") -> int:
    answer = await call(state, ProduceOps([ProduceOp(topic, 0, batch_of(bytes(size)))]))
    return answer.partitions[0].error_code


async def test_the_limits_of_a_record_are_those_of_the_org() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await limit(state, max_topics=2, max_partitions=5, max_groups=1)
        assert [await create(state, name) for name in "abc"] == [0, 0, FULL]
        grown = await create_partitions(state, context(), CreatePartitions("a", 5))
        assert grown.error_code == FULL
        assert await commit(state, "g", CommitOffset("a", 0, 1)) == [0]
        assert await commit(state, "h", CommitOffset("a", 0, 1)) == [FULL]
        assert await create(state, "c", 100, org=2) == 0
    async with running_state(disk) as state:
        assert await create(state, "c") == FULL
        await limit(state, max_topics=3)
        assert await create(state, "c", 100) == 0


async def test_stored_bytes_are_limited_and_freed() -> None:
    async with running_state(MemoryDisk()) as state:
        assert await create(state, "t") == 0
        assert await produce(state, 1_000) == 0
        await limit(state, max_stored_bytes=2_500)
        assert [await produce(state, 1_000) for _ in range(2)] == [0, FULL]
        (topic,) = state.registry.topics(1)
        await state.topics.delete_records({topic: {0: 2}})
        await state.stored_bytes._recount(1)
        # Up to 64 deleted batches may still count; the next topic has none.
        await state.topics.delete(topic)
        await state.stored_bytes._recount(1)
        assert await create(state, "t") == 0
        assert await produce(state, 1_000) == 0
        await limit(state)
        assert not any([await produce(state, 1_000) for _ in range(5)])


async def test_an_org_remembers_as_many_producers_as_it_may() -> None:
    async with running_state(MemoryDisk()) as state:
        assert await create(state, "t") == 0
        await limit(state, max_producer_ids=2)
        for _ in range(4):
            producer = await state.producer_ids.allocate(1), 0, 0
            op = ProduceOps([ProduceOp("t", 0, batch_of(b"x", producer=producer))])
            assert not (await call(state, op)).partitions[0].error_code
        assert len(state.producers) == 2


async def fill(state: BrokerState) -> None:
    for name in ("a", "b"):
        assert await create(state, name, 3) == 0
    assert await create(state, "other", org=2) == 0
    assert await produce(state, topic="a") == 0
    assert await commit(state, "idle", CommitOffset("a", 0, 1)) == [0]
    assert await first_join(state, "pending") == ErrorCode.MEMBER_ID_REQUIRED
    sender = Sender(state)
    await sender.init()
    await sender.write("a", 1, b"open")
    assert await alter_users(state, user("alice")) == [0]
    assert await alter_users(state, user("alice"), org=2) == [0]
    assert await create_acls(state, rule()) == [0]


async def test_deleting_an_org_leaves_nothing_of_it_and_all_of_others() -> None:
    async with running_state(MemoryDisk()) as state:
        state.groups.limits = replace(state.groups.limits, initial_delay=0.1)
        await limit(state)
        await fill(state)
        member = asyncio.create_task(joined(state, "busy", require_member_id=False))
        await asyncio.sleep(0)
        before = await watch(state)
        assert not (await delete(state)).error_code
        news = await watch(state, before)
        assert shown(news.changes) == ["org 1"]
        assert await create(state, "late") == FULL
        async with asyncio.timeout(5):
            while not await remove_org(state, 1):
                await asyncio.sleep(0.01)
        await asyncio.wait([member], timeout=5)
        assert state.registry.topics(1) == []
        assert state.groups.groups(1) == []
        assert not state.transactions.table.entries
        assert not state.producers._orgs[1].known
        assert {id_.org_id for id_ in state.log.partitions.ids()} == {0}
        gone = shown((await watch(state, news)).changes)
        assert gone == ["-user 1 alice", "-acl 1 t", "-org 1"]
        assert [topic.name for topic in state.registry.topics(2)] == ["other"]
        assert "alice" in state.security.table.of(2).users
        assert await create(state, "again") == 0  # the broker's settings apply again
        made = await ops.alter_org(state, context(), AlterOrg(0, "new", "", None, create=True))
        assert made.org is not None
        assert made.org.org_id > 2


async def test_a_restart_goes_on_deleting() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await fill(state)
        assert not (await delete(state)).error_code  # without a record before
        left = disk.crashed()
    async with running_state(left, lease_seconds=0) as state:
        assert state.security.deleting.is_set()
        removing = asyncio.create_task(run_org_removal(state))
        async with asyncio.timeout(5):
            while state.security.table.orgs:
                await asyncio.sleep(0.01)
        removing.cancel()
        assert not state.registry.topics(1)
        left = left.crashed()
    async with running_state(left) as state:
        assert not state.security.table.orgs
        assert not state.registry.topics(1)


async def test_a_deleted_org_never_comes_back_to_life() -> None:
    async with running_state(MemoryDisk()) as state:
        await limit(state)
        await delete(state)
        op = AlterOrg(1, "", "active", None)
        assert (await ops.alter_org(state, context(), op)).error_code == ErrorCode.INVALID_REQUEST
        assert not (await delete(state)).error_code
