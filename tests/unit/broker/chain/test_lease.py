"""Leases: renewed while the chain is alive, and over when nobody renews them."""

from __future__ import annotations

import asyncio
from random import Random

from quafka_broker.chain.lease import LEASE_MS, LeaseWatch, keep_lease, should_take_over
from quafka_broker.chain.takeover import take_over
from quafka_proto.chain_format import Owner, ShardManifest
from tests.sim.shards import virtual_time
from tests.sim.shards.store import Objects, Process, SimulatedStore, Weather

OWNER = Owner("a", "a:9094")


def test_a_lease_is_renewed_until_the_shard_is_released() -> None:
    async def main() -> None:
        process = Process("a")
        store = SimulatedStore(Objects(), process, Weather(), Random(1))
        chain = (await take_over(store, 0, OWNER, process.wall_clock)).chain
        lease = asyncio.ensure_future(keep_lease(chain, process.wall_clock))
        for _ in range(10):
            await asyncio.sleep(LEASE_MS / 1000)
            assert not should_take_over(chain.manifest, int(process.wall_clock() * 1000))
        await chain.release()
        await lease
        assert should_take_over(chain.manifest, 0)

    virtual_time.run(main())


def test_when_a_takeover_is_due() -> None:
    manifest = ShardManifest(0, 1, OWNER, lease_until_ms=5_000)
    assert should_take_over(None, 0)
    assert should_take_over(ShardManifest(0, 1, None, 5_000), 0)
    assert not should_take_over(manifest, 5_000)
    assert should_take_over(manifest, 5_001)
    assert should_take_over(manifest, 0, "a"), "its own, from before a restart"
    assert not should_take_over(manifest, 0, "b")


def test_a_watch_needs_no_wall_clock() -> None:
    watch = LeaseWatch(4_000)
    first = ShardManifest(0, 1, OWNER, lease_until_ms=0, nonce="1")
    assert not watch.is_over(first, 100.0)
    assert not watch.is_over(first, 103.9)
    renewed = ShardManifest(0, 1, OWNER, lease_until_ms=0, nonce="2")
    assert not watch.is_over(renewed, 104.1)
    assert not watch.is_over(renewed, 108.0)
    assert watch.ends_at == 108.1
    assert watch.is_over(renewed, 108.1)
    assert watch.is_over(None, 0)
    assert watch.is_over(ShardManifest(0, 1, None, nonce="3"), 0)
