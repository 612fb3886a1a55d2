"""The configs of share groups at a gateway: how long it uses them, and what a change does."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.shares import CONFIGS_SECONDS, ClusterShares
from quafka_mesh_ops.ops.group_configs import ShareGroupConfigs
from quafka_mesh_ops.ops.share_groups import ShareGroupTopics, ShareGroupTopicsResp
from quafka_mesh_ops.ops.shares import ShareConfigs
from quafka_proto.errors import ErrorCode

A, B, C = (bytes([number]) * 16 for number in range(3))


class Home:
    """The broker of the groups. `lock_ms`: a config; `error`: of each op."""

    def __init__(self) -> None:
        self.lock_ms = 0
        self.error = 0
        self.calls = 0
        self.answers = asyncio.Event()
        self.answers.set()

    def link_of_group(self, _group: str) -> Home:
        return self

    async def call(self, op: object, _trace: None) -> object:
        self.calls += 1
        if self.error:
            raise BrokerUnavailableError("away", self.error)
        if isinstance(op, ShareGroupTopics):
            return ShareGroupTopicsResp([{A: 1, B: 3}.get(each, -1) for each in op.topic_ids])
        assert isinstance(op, ShareGroupConfigs)
        found = ShareConfigs(self.lock_ms)
        await self.answers.wait()
        return found


def made() -> tuple[Home, ClusterShares]:
    home = Home()
    return home, ClusterShares(cast(Cluster, home))


async def lock_ms(shares: ClusterShares) -> int:
    return (await shares.configs("g", None)).lock_ms


async def test_they_are_used_for_a_second() -> None:
    home, shares = made()
    assert await lock_ms(shares) == 0
    home.lock_ms = 1
    await asyncio.sleep(CONFIGS_SECONDS / 2)
    assert (await lock_ms(shares), home.calls) == (0, 1)
    await asyncio.sleep(CONFIGS_SECONDS)
    assert (await lock_ms(shares), home.calls) == (1, 2)
    home.error = ErrorCode.BROKER_NOT_AVAILABLE
    await asyncio.sleep(2 * CONFIGS_SECONDS)
    assert await lock_ms(shares) == 1


async def test_a_request_after_a_change_uses_the_new_ones() -> None:
    home, shares = made()
    assert await lock_ms(shares) == 0
    home.lock_ms = 1
    shares.forget_configs("g")
    assert await lock_ms(shares) == 1


async def test_an_answer_from_before_a_change_is_not_kept() -> None:
    home, shares = made()
    home.answers.clear()
    asked = asyncio.create_task(lock_ms(shares))
    await asyncio.sleep(0)
    home.lock_ms = 1
    shares.forget_configs("g")
    home.answers.set()
    assert await asked == 0
    assert await lock_ms(shares) == 1


async def test_the_partitions_that_are_new_to_a_group() -> None:
    home, shares = made()
    assert await shares.new_to("g", [], None) == set()
    assert home.calls == 0
    places = [(A, 0), (A, 1), (B, 2), (B, 3), (C, 0)]
    assert await shares.new_to("g", places, None) == {(A, 1), (B, 3)}
    home.error = ErrorCode.UNSUPPORTED_VERSION
    assert await shares.new_to("g", places, None) == set()
    home.error = ErrorCode.BROKER_NOT_AVAILABLE
    with pytest.raises(BrokerUnavailableError) as refused:
        await shares.new_to("g", places, None)
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
