"""Damage to the journal of users and rules: a copy covers it, or nobody gets any record."""

from __future__ import annotations

import zlib

import pytest

from quafka_broker.journals.internal_topics import SECURITY
from quafka_broker.ops import security as ops
from quafka_broker.state import BrokerState
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.security import AlterUsers, UserChange
from quafka_proto.errors import ErrorCode
from tests.support.suites import more
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.test_security import (
    ANY,
    FILLED,
    SHA256,
    alter_org,
    alter_users,
    create_acls,
    delete_acls,
    fill,
    rule,
    shown,
    user,
    watch,
)
from tests.unit.broker.test_transactions_recovery import damage, rows_of
from tests.unit.broker.tools import context, running_state

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


async def is_closed(state: BrokerState) -> bool:
    """Whether the broker hands out no records, and takes none."""
    if not state.security.journal.incomplete:
        return False
    with pytest.raises(OpFailedError, match="56"):
        await watch(state)
    assert await alter_users(state, user("x")) == [STORAGE]
    assert await create_acls(state, rule("x")) == [STORAGE]
    assert (await alter_org(state, 9, "x", create=True)).error_code == STORAGE
    answer = await ops.alter_users(state, context(), AlterUsers([user("x")]))
    assert "events" in answer.messages[0]
    assert await delete_acls(state, ANY) == [[]]
    assert state.security.orgs_to_delete() == []
    return True


async def test_a_lost_event_closes_the_records_until_it_is_back() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await fill(state)
        left = disk.crashed()
    hurt, row = left.copy(), rows_of(left, SECURITY)[3]
    damage(hurt, row)
    async with running_state(hurt) as state:
        assert await is_closed(state)
        await state.topics.create(1, "t", 1)  # everything else goes on
        await state.log.checkpoint()
        await state.security.journal.shorten()
    async with running_state(hurt) as state:
        assert await is_closed(state)
    damage(hurt, row)  # back as it was
    async with running_state(hurt) as state:
        assert not await is_closed(state)
        assert sorted(shown((await watch(state)).changes)) == FILLED


async def test_damage_that_a_checkpoint_covers_costs_nothing() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await fill(state)
        await state.log.checkpoint()
        assert await create_acls(state, rule("after")) == [0]
        left = disk.copy()
    for row in rows_of(left, SECURITY)[:3]:
        damage(left, row)
    async with running_state(left) as state:
        assert sorted(shown((await watch(state)).changes)) == ["acl 1 after", *FILLED]
        await state.security.journal.shorten()
        assert not state.log.partitions.is_damaged(SECURITY)
        left = left.crashed()
    async with running_state(left) as state:  # without a checkpoint: the events are restated
        assert sorted(shown((await watch(state)).changes)) == ["acl 1 after", *FILLED]


@pytest.mark.parametrize("size_survives", [*more([True]), False])
async def test_a_power_cut_at_any_write_leaves_each_change_whole(size_survives: bool) -> None:
    """250 users are three entries of the log; the removal before them is answered."""
    disk = MemoryDisk(record=True)
    async with running_state(disk) as state:
        assert await alter_users(state, user("alice"), user("bob")) == [0, 0]
        assert await alter_users(state, UserChange("alice", SHA256)) == [0]
        began = len(disk.snapshots)
        assert await alter_users(state, *(user(str(at)) for at in range(250))) == [0] * 250
        ended = len(disk.snapshots)
        assert await create_acls(state, rule()) == [0]
    seen: set[int] = set()
    for at, snapshot in enumerate(disk.snapshots[began - 1 :], began - 1):
        for share in (0.0, 0.3, 0.6, 0.9, 1.0):

            def survives(name: str, sector: int, share: float = share) -> bool:
                return zlib.crc32(f"{share} {name} {sector}".encode()) % 100 < 100 * share

            left = snapshot.after_power_cut(survives, size_survives)
            async with running_state(left, lease_seconds=0) as state:
                assert not state.security.journal.incomplete
                users = state.security.table.of(1).users
                assert "bob" in users
                assert "alice" not in users
                assert len(users) in ((251,) if at >= ended else (1, 251))
                seen.add(len(users))
    assert seen == {1, 251}


async def test_an_event_that_no_version_has_written_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    monkeypatch.setattr("quafka_broker.journals.event_values._VERSION", b"\x02")
    async with running_state(disk) as state:
        await alter_users(state, user("alice"))
        left = disk.crashed()
    monkeypatch.undo()
    with pytest.raises(Exception, match="version 02"):
        async with running_state(left):
            pass
