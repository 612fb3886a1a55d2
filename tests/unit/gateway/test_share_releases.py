"""The records of members of share groups whose connections are lost."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from quafka_gateway.cluster import shares as shares_module
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.shares import ClusterShares
from quafka_mesh_ops.ops.shares import ReleaseRecords


class Broker:
    """The only broker of its cluster. `waits`: it does not answer until then."""

    def __init__(self) -> None:
        self.links = [self]
        self.released: list[str] = []
        self.answers = asyncio.Event()

    def wait_among_others(self, seconds: float) -> float:
        return seconds

    async def call(self, op: ReleaseRecords, _trace: None, _seconds: float) -> None:
        self.released.append(op.member_id)
        await self.answers.wait()


def made() -> tuple[Broker, ClusterShares]:
    broker = Broker()
    return broker, ClusterShares(cast(Cluster, broker))


async def test_those_of_many_members_are_given_back_by_and_by() -> None:
    """Each is an op of its own: all of them at once would hold up the event loop."""
    broker, shares = made()
    broker.answers.set()
    most = before = 0
    for number in range(500):
        shares.release_later(ReleaseRecords("g", str(number), []))
    while len(broker.released) < 500:
        await asyncio.sleep(0)
        most = max(most, len(broker.released) - before)
        before = len(broker.released)
    assert most <= 2
    assert broker.released == [str(number) for number in range(500)]
    shares.release_later(ReleaseRecords("g", "later", []))
    await shares.close()
    assert broker.released[-1] == "later"


async def test_a_gateway_that_stops_waits_for_the_broker_but_not_for_ever() -> None:
    broker, shares = made()
    shares.release_later(ReleaseRecords("g", "m", []))
    begun = asyncio.get_running_loop().time()
    await shares.close()
    assert broker.released == ["m"]
    assert asyncio.get_running_loop().time() - begun == 5


async def test_more_than_the_bound_are_left_to_their_locks_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shares_module, "_MOST_RELEASES", 3)
    broker, shares = made()
    for number in range(10):
        shares.release_later(ReleaseRecords("g", str(number), []))
    broker.answers.set()
    await shares.close()
    assert broker.released == ["0", "1"]
    assert len(caplog.records) == 1
