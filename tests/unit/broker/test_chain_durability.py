"""Groups that become durable as objects of a chain: several under way, published in order."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from quafka_broker.partitions.errors import InDoubtError, MovedError, StorageError
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.chain_durability import ChainLink, ChainPolicy
from quafka_broker.wal.commit_group import WriteTimes
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_loop.eager_task import DirectFuture
from tests.support.memory_chain import MemoryChain
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import append, checked, open_log, topic_id, values_of

SEGMENT = 1 << 20
AT_ONCE = ChainPolicy(0.0, 1 << 20, 60.0)


@asynccontextmanager
async def chained(
    chain: MemoryChain,
    policy: ChainPolicy = AT_ONCE,
    segment_bytes: int = SEGMENT,
    disk: MemoryDisk | None = None,
) -> AsyncGenerator[Log]:
    log = Log(
        disk or MemoryDisk(), FsyncPolicy(), segment_bytes, 1 << 30, chain=ChainLink(chain, policy)
    )
    try:
        log.open(Producers())
        log.settle(dict.fromkeys(log.partitions.ids(), 0))
        log.start()
        yield log
    finally:
        await log.close()


def begin(log: Log, value: bytes, topic: str = "t") -> DirectFuture[list[int]]:
    return log.queue.append(log.partitions.get(topic_id(topic)), checked(value))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def three_under_way(log: Log, chain: MemoryChain) -> list[DirectFuture[list[int]]]:
    """Three appends in groups of their own, none of which is durable."""
    pending: list[DirectFuture[list[int]]] = []
    for number in range(3):
        pending.append(begin(log, b"%d" % number))
        await until(lambda: len(chain.under_way) == len(pending))
    return pending


async def test_groups_are_under_way_together_and_published_in_order() -> None:
    chain = MemoryChain()
    async with chained(chain) as log:
        pending = await three_under_way(log, chain)
        assert await values_of(log, "t") == []
        assert not any(each.done() for each in pending)
        chain.create()
        assert await pending[0] == [0]
        assert not pending[1].done()
        assert await values_of(log, "t") == [b"0"]
        chain.create(2)
        assert [await each for each in pending] == [[0], [1], [2]]
        assert await values_of(log, "t") == [b"0", b"1", b"2"]
    async with open_log(chain.disk()) as log:
        assert await values_of(log, "t") == [b"0", b"1", b"2"]


async def test_what_waits_while_the_chain_is_full_shares_an_object() -> None:
    chain = MemoryChain(most=1)
    async with chained(chain) as log:
        pending = [begin(log, b"0")]
        await until(lambda: len(chain.under_way) == 1)
        pending += [begin(log, b"%d" % number) for number in range(1, 5)]
        chain.create()
        await until(lambda: len(chain.under_way) == 1)
        chain.create()
        assert [await each for each in pending] == [[n] for n in range(5)]
        assert [made.entry_count for made in chain.objects] == [1, 4]


async def test_the_first_append_goes_at_once_and_the_next_ones_together() -> None:
    chain = MemoryChain(latency=lambda: 0.001)
    async with chained(chain, ChainPolicy(1.5, 1 << 20, 60.0)) as log:
        async with asyncio.timeout(1.4):
            await append(log, "t", b"0")
        await asyncio.gather(*[append(log, "t", b"%d" % n) for n in range(1, 9)])
        assert [made.entry_count for made in chain.objects] == [1, 8]


async def test_enough_bytes_do_not_wait_for_others() -> None:
    chain = MemoryChain(latency=lambda: 0.001)
    async with chained(chain, ChainPolicy(60.0, 10_000, 60.0)) as log:
        async with asyncio.timeout(5):
            await append(log, "t", b"0")
            await asyncio.gather(*[append(log, "t", bytes(4_000)) for _ in range(3)])
        assert [made.entry_count for made in chain.objects] == [1, 3]


async def test_an_object_never_spans_two_segments() -> None:
    chain = MemoryChain(latency=lambda: random.uniform(0, 0.002))
    async with chained(chain, segment_bytes=2_000) as log:
        async with asyncio.timeout(20):
            for _ in range(20):
                await asyncio.gather(*[append(log, "t", bytes(100)) for _ in range(3)])
    assert len({made.segment for made in chain.objects}) > 2
    async with open_log(chain.disk(), segment_bytes=2_000) as log:
        assert len(await values_of(log, "t")) == 60


async def test_when_another_broker_has_the_log_nothing_is_acknowledged() -> None:
    chain = MemoryChain()
    async with chained(chain) as log:
        pending = await three_under_way(log, chain)
        chain.create()
        assert await pending[0] == [0]
        waiting = begin(log, b"waits")
        log.give_up("shard 0 belongs to another broker")
        for each in pending[1:]:
            with pytest.raises(InDoubtError):
                await each
        with pytest.raises(MovedError):
            await waiting
        chain.create(len(chain.under_way))  # they exist, but this broker has said so to nobody
        with pytest.raises(MovedError):
            await begin(log, b"later")
        assert await values_of(log, "t") == [b"0"]
        async with asyncio.timeout(10):
            await log.queue.wait_for_room()


async def test_a_refused_object_ends_the_log() -> None:
    chain = MemoryChain()
    async with chained(chain) as log:
        pending = await three_under_way(log, chain)
        chain.fail("the epoch is over")
        for each in pending:
            with pytest.raises(InDoubtError, match="the epoch is over"):
                await each
        with pytest.raises(StorageError, match="the epoch is over"):
            await begin(log, b"later")
        with pytest.raises(OSError, match="the epoch is over"):
            await log.checkpoint()


async def test_objects_of_a_log_that_was_given_up_fail_in_silence() -> None:
    chain = MemoryChain()
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with chained(chain) as log:
        pending = await three_under_way(log, chain)
        log.give_up("shard 0 belongs to another broker")
        chain.fail("shard 0 belongs to another broker")
        for each in pending:
            with pytest.raises(InDoubtError):
                await each
    gc.collect()
    assert unheard == []


async def test_a_silent_store_refuses_what_waits_and_keeps_what_was_sent() -> None:
    chain = MemoryChain(most=1)
    chain.trouble = "access is denied"
    async with chained(chain, ChainPolicy(0.0, 1 << 20, 0.05)) as log:
        sent = begin(log, b"sent")
        await until(lambda: len(chain.under_way) == 1)
        waiting = begin(log, b"waits")
        with pytest.raises(StorageError, match=r"has taken no object for 0\.05 seconds$"):
            await waiting
        with pytest.raises(StorageError, match="has taken no object"):
            await begin(log, b"new")
        assert (log.health().refusing or "").endswith("seconds: access is denied")
        assert log.figures().pending_bytes < 200
        assert not sent.done()
        chain.create()
        assert await sent == [0]
        again = begin(log, b"again")
        await until(lambda: len(chain.under_way) == 1)
        chain.create()
        assert await again == [1]
        assert log.health().refusing is None
        assert await values_of(log, "t") == [b"sent", b"again"]


async def test_a_local_disk_that_is_full_refuses_one_group_and_no_other() -> None:
    chain, disk = MemoryChain(), MemoryDisk()
    async with chained(chain, disk=disk) as log:
        pending = [begin(log, b"before")]
        await until(lambda: len(chain.under_way) == 1)
        disk.room = 50
        failed = begin(log, b"does not fit")
        with pytest.raises(StorageError, match="No space left"):
            await failed
        disk.room = None
        pending.append(begin(log, b"after"))
        await until(lambda: len(chain.under_way) == 2)
        chain.create(2)
        assert [await each for each in pending] == [[0], [1]]
        assert await values_of(log, "t") == [b"before", b"after"]
    async with open_log(chain.disk()) as log:
        assert await values_of(log, "t") == [b"before", b"after"]


async def test_a_local_disk_that_cannot_take_back_ends_the_log_after_what_was_sent() -> None:
    chain, disk = MemoryChain(), MemoryDisk()
    async with chained(chain, disk=disk) as log:
        sent = begin(log, b"before")
        await until(lambda: len(chain.under_way) == 1)
        disk.room, disk.truncate_fails = 50, True
        with pytest.raises(StorageError):
            await begin(log, b"does not fit")
        chain.create()
        assert await sent == [0]
        assert log.failure is not None


async def test_a_seal_waits_for_what_is_under_way() -> None:
    chain = MemoryChain()
    async with chained(chain) as log:
        pending = await three_under_way(log, chain)
        sealing = asyncio.ensure_future(log.seal())
        await asyncio.sleep(0.01)
        assert not sealing.done()
        chain.create(3)
        await sealing
        assert [await each for each in pending] == [[0], [1], [2]]
        last = begin(log, b"3")
        await until(lambda: len(chain.under_way) == 1)
        chain.create()
        assert await last == [3]
        assert [made.segment for made in chain.objects] == [0, 0, 0, 1]


async def test_each_start_begins_a_leader_epoch() -> None:
    disk = MemoryDisk()
    for epoch in range(3):
        chain = MemoryChain(latency=lambda: 0.0)
        async with chained(chain, disk=disk) as log:
            assert log.epochs.current == epoch
            assert not log.began_epoch, "nothing was lost"
            await append(log, "t", b"x")


async def test_an_end_of_the_loop_with_a_silent_store_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quafka_broker.wal.chain_durability._CLOSING_SECONDS", 0.05)
    chain = MemoryChain(most=1)
    async with asyncio.timeout(5), chained(chain) as log:
        sent = begin(log, b"sent")
        await until(lambda: len(chain.under_way) == 1)
        waiting = begin(log, b"waits")
        await log.close()
        with pytest.raises(InDoubtError):
            await sent
        with pytest.raises(StorageError):
            await waiting


async def test_a_trace_says_that_the_write_was_a_put() -> None:
    writes: list[WriteTimes] = []
    async with chained(MemoryChain(latency=lambda: 0.001)) as log:
        await log.queue.append(log.partitions.get(topic_id("t")), checked(b"value"), writes=writes)
    (write,) = writes
    assert write.put
    assert write.began <= write.written <= write.synced
