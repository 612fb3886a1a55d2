"""Ids for idempotent producers: no broker gives one that it, or another, has given."""

from __future__ import annotations

from itertools import pairwise

from quafka_broker.ops import producer_ids
from quafka_broker.producer_ids import producer_id_space
from quafka_broker.topics.identity import new_cluster_id
from quafka_mesh_ops.ops.records import InitProducerId, InitProducerIdResp
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


def test_spaces_are_whole_and_do_not_overlap() -> None:
    spaces = [producer_id_space(new_cluster_id()) for _ in range(100)]
    assert all(space.start in _LONGS and space.stop - 1 in _LONGS for space in spaces)
    starts = sorted(space.start for space in spaces)
    assert all(b - a >= 1 << 32 for a, b in pairwise(starts))
