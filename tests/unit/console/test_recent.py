"""Readings that are shared."""

from __future__ import annotations

import asyncio

import pytest

from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_console.data.recent import Recent, whose


class Readings:
    """A reading takes a second and returns its number."""

    def __init__(self) -> None:
        self.number = 0

    async def read(self) -> int:
        self.number += 1
        await asyncio.sleep(1.0)
        return self.number


async def test_one_reading_serves_all_until_it_is_old() -> None:
    recent, readings = Recent[int](2.0), Readings()
    assert await asyncio.gather(*(recent.read("a", readings.read) for _ in range(5))) == [1] * 5
    assert await recent.read("a", readings.read) == 1
    await asyncio.sleep(2.5)
    assert await recent.read("a", readings.read) == 2
    assert await recent.read("b", readings.read) == 3, "another key"
    assert await recent.read("b", readings.read) == 3


async def test_one_who_leaves_does_not_end_the_reading_of_others() -> None:
    recent, readings = Recent[int](2.0), Readings()
    leaving = asyncio.create_task(recent.read("a", readings.read))
    staying = asyncio.create_task(recent.read("a", readings.read))
    await asyncio.sleep(0.5)
    leaving.cancel()
    assert await staying == 1


async def test_an_error_is_shared_and_does_not_last() -> None:
    recent, readings = Recent[int](2.0), Readings()

    async def fail() -> int:
        raise ClientError("the gateway is away")

    for read in (fail, readings.read):
        with pytest.raises(ClientError, match="away"):
            await recent.read("a", read)
    await asyncio.sleep(2.5)
    assert await recent.read("a", readings.read) == 1


async def test_sign_ins_do_not_share_what_the_cluster_decides() -> None:
    recent, readings = Recent[int](60.0), Readings()
    first, second = ClientCluster([("a", 1)]), ClientCluster([("a", 1)])
    for cluster, number in ((first, 1), (second, 2), (first, 1)):
        assert await recent.read(whose(cluster), readings.read) == number
    left = whose(first)
    del first, cluster
    later = ClientCluster([("a", 1)])
    assert left != whose(later)
    assert await recent.read(whose(later), readings.read) == 3, "it may be at the same address"


async def test_what_is_old_is_forgotten() -> None:
    recent, readings = Recent[int](2.0), Readings()
    await asyncio.gather(*(recent.read(key, readings.read) for key in "abc"))
    await asyncio.sleep(2.5)
    await recent.read("d", readings.read)
    assert list(recent._readings) == ["d"]


async def test_the_oldest_reading_is_replaced() -> None:
    recent, readings = Recent[int](60.0, most=2), Readings()
    for key, number in (("a", 1), ("b", 2), ("c", 3), ("b", 2), ("a", 4)):
        assert await recent.read(key, readings.read) == number
