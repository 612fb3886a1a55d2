"""The figures of groups by kind, and the lag of share groups."""

from __future__ import annotations

from pathlib import Path

from quafka_broker.groups.group import GroupType
from quafka_broker.groups.metrics import by_kind, group_families
from quafka_broker.ops import groups, share_groups
from quafka_broker.shares.metrics import share_families
from quafka_broker.state import BrokerState
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_mesh_ops.ops.groups import Heartbeat
from quafka_mesh_ops.ops.share_groups import ShareHeartbeat
from quafka_telemetry.metrics import Family
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.test_fetch import put
from tests.unit.broker.test_served_consumer import beat, idle
from tests.unit.broker.test_shares import acknowledge, acquire
from tests.unit.broker.tools import ORG, context, running_state


def values(families: list[Family], name: str) -> dict[tuple[str, ...], float]:
    (family,) = (each for each in families if each.name == name)
    return {tuple(map(str, labels)): value for labels, value in family.samples}  # type: ignore[misc]


async def members(state: BrokerState) -> None:
    first = await beat(state)
    await beat(state, member_id="n")
    await beat(state, idle("m", first.member_epoch))
    await groups.heartbeat(state, context(), Heartbeat("g", 1, "nobody"))
    await groups.heartbeat(state, context(), Heartbeat("unknown", 1, "nobody"))
    share = ShareHeartbeat("s", "m", 0, topics=["t"], is_whole=True)
    await share_groups.heartbeat(state, context(), share)


async def test_groups_members_epochs_and_heartbeats_by_kind() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 2)
        await members(state)
        found = {each.kind: each[1:] for each in by_kind(state.groups)}
        assert found == {
            GroupType.CLASSIC: (0, 0, 0, 0), GroupType.CONSUMER: (1, 2, 2, 4),
            GroupType.SHARE: (1, 1, 1, 1),
        }  # fmt: skip
        families = list(group_families(state.groups))
        assert values(families, "quafka_group_members")["consumer",] == 2
        await beat(state, idle("n", -1))
    async with running_state(disk, lease_seconds=0) as state:
        await beat(state, member_id="o")
        consumer = by_kind(state.groups)[list(GroupType).index(GroupType.CONSUMER)]
        assert (consumer.members, consumer.epochs) == (2, 1), "counted since the start"


async def test_lag_and_full_windows_of_share_groups() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await share_groups.heartbeat(
            state, context(), ShareHeartbeat("g", "m", 0, topics=["t"], is_whole=True)
        )
        for _ in range(4):
            await put(state, topic, b"1", b"2", b"3")
        await acquire(state, max_records=6)
        assert await acknowledge(state, (1, 2, 1)) == 0
        metrics = BrokerMetrics(state, BrokerStats(), Path())
        await metrics.read_lags()
        (group,) = metrics.groups
        assert (group.kind, group.partitions, group.records) == ("share", 1, 10)
        assert values(list(share_families(state.shares)), "quafka_share_full_partitions") == {(): 0}
