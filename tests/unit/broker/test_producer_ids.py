"""Ids for idempotent producers: no broker gives one that it, or another, has given."""

from __future__ import annotations

from itertools import pairwise

from quafka_broker.ops import producer_ids
from quafka_broker.topics.identity import new_cluster_id
from quafka_broker.transactions.producer_ids import producer_id_space
from quafka_mesh_ops.ops.records import InitProducerId, InitProducerIdResp
from quafka_proto.errors import ErrorCode
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import context, running_state

_LONGS = range(1 << 63)


async def ask(disk: MemoryDisk, *asked: tuple[int, int]) -> list[InitProducerIdResp]:
    async with running_state(disk) as state:
        return [await producer_ids.handle(state, context(), InitProducerId(*a)) for a in asked]


async def test_brokers_do_not_give_each_others_ids() -> None:
    given = [(await ask(MemoryDisk(), (-1, -1)))[0].producer_id for _ in range(8)]
    assert len({producer_id >> 32 for producer_id in given}) == 8
    assert all(producer_id in _LONGS for producer_id in given)


async def test_a_broker_keeps_its_space_and_gives_no_id_twice() -> None:
    disk = MemoryDisk()
    given = [a.producer_id for _ in range(3) for a in await ask(disk, (-1, -1), (-1, -1))]
    assert len(set(given)) == 6
    assert len({producer_id >> 32 for producer_id in given}) == 1


async def test_the_next_epoch_is_given_by_who_gave_the_id() -> None:
    disk = MemoryDisk()
    (first,) = await ask(disk, (-1, -1))
    for producer_id, epoch, same in (
        (first.producer_id, 0, True),
        (first.producer_id, 7, True),
        (first.producer_id ^ 1 << 40, 0, False),
        (5, 0, False),
        (first.producer_id + 1_000_000, 0, False),
        (first.producer_id, 0x7FFE, False),
    ):
        (answer,) = await ask(disk, (producer_id, epoch))
        assert (answer.producer_id == producer_id) == same
        assert answer.producer_epoch == (epoch + 1 if same else 0)


async def test_an_org_gets_so_many_ids_in_an_hour() -> None:
    now = 0.0
    async with running_state(MemoryDisk()) as state:
        ids = state.producer_ids
        ids._now = lambda: now
        ids._limit = lambda org: 10 * org
        assert [ids.admit(1) for _ in range(12)] == [True] * 10 + [False] * 2
        assert all(ids.admit(2) for _ in range(20))
        now = 400.0
        assert [ids.admit(1) for _ in range(2)] == [True, False]
        now = 40_000.0
        assert sum(ids.admit(1) for _ in range(20)) == 10
        ids._limit = lambda _: 0
        answer = await producer_ids.handle(state, context(), InitProducerId())
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        before = InitProducerId(await ids.allocate(1), 3)
        assert (await producer_ids.handle(state, context(), before)).producer_epoch == 4


async def test_an_org_sees_nothing_of_another_one_in_a_block() -> None:
    async with running_state(MemoryDisk()) as state:
        allocate = state.producer_ids.allocate
        own: list[int] = []
        others: list[int] = []
        for _ in range(64):
            own.append(await allocate(1))
            others += [await allocate(org) for org in range(2, 10)]
        assert own == list(range(own[0], own[0] + 64))
        next_one = await allocate(1)
        assert next_one > max(own)
        assert len({*own, next_one, *others}) == 65 + len(others)


async def test_ids_of_an_org_rise_over_restarts() -> None:
    disk = MemoryDisk()
    given: list[int] = []
    for _ in range(3):
        async with running_state(disk) as state:
            for org in (2, 1):
                last = await state.producer_ids.allocate(org)
                given.append(last)
    assert len(set(given)) == 6
    assert given[1::2] == sorted(given[1::2])
    assert max(given[:2]) < min(given[2:])


def test_spaces_are_whole_and_do_not_overlap() -> None:
    spaces = [producer_id_space(new_cluster_id()) for _ in range(100)]
    assert all(space.start in _LONGS and space.stop - 1 in _LONGS for space in spaces)
    starts = sorted(space.start for space in spaces)
    assert all(b - a >= 1 << 32 for a, b in pairwise(starts))
