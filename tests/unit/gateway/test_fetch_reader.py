"""Shared reads: the number of ops to the broker, and no stale, early or wrong answer."""

from __future__ import annotations

import asyncio

import pytest

from quafka_gateway.fetch import watermark_refresh
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from quafka_proto.errors import ErrorCode
from tests.unit.broker.tools import ORG
from tests.unit.gateway.near_broker import Edge, running_edge, values


async def test_a_second_consumer_is_answered_from_memory() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a", b"b")
        await edge.with_lease()
        for _ in range(8):
            answer = await edge.fetch(0)
            assert values(answer) == [b"a", b"b"]
            assert (answer.high_watermark, answer.log_start_offset) == (2, 0)
        assert edge.broker.fetched == []


async def test_names_and_ids_share_the_cache() -> None:
    async with running_edge() as edge:
        topic = edge.state.registry.find(ORG, "t", b"")
        assert topic is not None
        await edge.produce(b"a")
        await edge.with_lease()
        assert values(await edge.fetch(0, topic_id=topic.uuid)) == [b"a"]
        assert edge.broker.fetched == []


async def test_a_thousand_consumers_at_the_tail_are_one_op() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        waiting = [asyncio.create_task(edge.fetch(1, max_wait_ms=5_000)) for _ in range(1_000)]
        await asyncio.sleep(0.05)
        assert edge.broker.parked == 1
        await edge.produce(b"b")
        assert [values(answer) for answer in await asyncio.gather(*waiting)] == [[b"b"]] * 1_000
        assert len(edge.broker.fetched) == 1


async def test_idle_consumers_share_their_wait_and_none_answers_early() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        took: list[float] = []
        begins: list[float] = []
        loop = asyncio.get_running_loop()

        async def poll(after: float) -> None:
            await asyncio.sleep(after)
            began = loop.time()
            begins.append(began)
            assert values(await edge.fetch(1, max_wait_ms=200)) == []
            took.append(loop.time() - began)

        await asyncio.gather(*(poll(i * 0.001) for i in range(100)))
        assert min(took) > 0.19
        assert max(took) < 10
        spread = max(begins) - min(begins)  # 0.1 s, but for a busy machine
        assert len(edge.broker.fetched) < 20 * max(1.0, spread / 0.1)


async def test_a_cancelled_fetch_harms_no_other_and_the_last_one_cancels_the_op() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        waiting = [asyncio.create_task(edge.fetch(1, max_wait_ms=5_000)) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()  # the fetch that sent the op
        await asyncio.sleep(0.01)
        assert edge.broker.parked == 1
        await edge.produce(b"b")
        assert values(await waiting[1]) == values(await waiting[2]) == [b"b"]
        again = [asyncio.create_task(edge.fetch(2, max_wait_ms=5_000)) for _ in range(2)]
        await asyncio.sleep(0.01)
        for task in again:
            task.cancel()
        await asyncio.sleep(0.01)
        assert edge.broker.parked == 0


async def test_an_error_is_neither_shared_nor_kept() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        for _ in range(2):
            answer = await edge.fetch(7)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (answer.log_start_offset, answer.high_watermark) == (0, 1)
        assert (await edge.fetch(0, "u")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await edge.state.topics.create(ORG, "u", 1)
        assert (await edge.fetch(0, "u")).error_code == ErrorCode.NONE


async def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a", b"b", b"c")
        await edge.with_lease()
        assert values(await edge.fetch(1)) == [b"a", b"b", b"c"]
        assert edge.broker.fetched == []


async def test_limits_hold_for_answers_from_memory() -> None:
    async with running_edge() as edge:
        for _ in range(3):
            await edge.produce(bytes(1_000))
        await edge.with_lease()
        assert len(values(await edge.fetch(0, max_bytes=10))) == 1  # at least one, however large
        assert len(values(await edge.fetch(0, max_bytes=2_500))) == 2
        assert edge.broker.fetched == []


async def test_min_bytes_waits_though_something_is_here() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        began = asyncio.get_running_loop().time()
        answer = await edge.fetch(0, min_bytes=10_000, max_wait_ms=100)
        assert values(answer) == [b"a"]
        assert asyncio.get_running_loop().time() - began > 0.09


async def test_a_sequential_reader_is_read_ahead_of() -> None:
    async with running_edge() as edge:
        for _ in range(200):
            await edge.produce(bytes(50_000))
        await edge.with_lease()
        offset = misses = 0
        while offset < 200:
            before = len(edge.broker.fetched)
            answer = await edge.fetch(offset, max_bytes=200_000)
            misses += len(edge.broker.fetched) > before
            offset += len(values(answer))
            await asyncio.sleep(0.005)
        largest = max(op.max_bytes for op in edge.broker.fetched)
        assert largest > 1 << 20  # it grew
        assert len(edge.broker.fetched) < 15  # for 10 MB
        assert misses < 15


async def test_reading_ahead_stops_with_the_reader() -> None:
    async with running_edge() as edge:
        for _ in range(400):
            await edge.produce(bytes(100_000))
        await edge.with_lease()
        for _ in range(3):
            offset = 0
            while offset < 40:
                offset += len(values(await edge.fetch(offset, max_bytes=1 << 20)))
        await asyncio.sleep(0.2)
        asked = sum(op.max_bytes for op in edge.broker.fetched)
        assert asked < 40 << 20
        before = len(edge.broker.fetched)
        await asyncio.sleep(0.1)
        assert len(edge.broker.fetched) == before


async def test_acknowledged_records_are_in_the_gateways_next_answer() -> None:
    async with running_edge() as edge:
        await edge.produce(b"0")
        await edge.with_lease()
        for number in range(1, 150):
            end = await edge.produce_here(b"%d" % number)
            answer = await edge.fetch(0, isolation_level=number % 2)
            assert answer.high_watermark == answer.last_stable_offset == end == number + 1
            assert len(values(answer)) == end
        # Each answer is read where the one before it ended, not from the beginning.
        assert len(edge.broker.fetched) == 149
        assert [op.partitions[0].fetch_offset for op in edge.broker.fetched] == [*range(1, 150)]


async def test_an_answer_that_an_acknowledgement_overtook_is_asked_for_again() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.fetch(0, "unknown")
        await asyncio.sleep(0.01)  # the lease is there; nothing is known of the partition
        edge.broker.delay_answer = 0.02
        late = asyncio.create_task(edge.fetch(0))
        await asyncio.sleep(0.01)
        assert await edge.produce_here(b"b") == 2
        edge.broker.delay_answer = 0.0
        assert (await late).high_watermark == 1
        answer = await edge.fetch(0)
        assert (answer.high_watermark, values(answer)) == (2, [b"a", b"b"])


async def test_an_answer_without_acknowledged_records_is_not_shared() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        edge.broker.delay_answer = 0.05
        early = asyncio.create_task(edge.fetch(1, max_wait_ms=5_000))
        await asyncio.sleep(0.01)
        await edge.produce(b"b")  # ends the wait; the answer is on its way
        await asyncio.sleep(0.01)
        assert await edge.produce_here(b"c") == 3
        answer = await edge.fetch(1, max_wait_ms=5_000)
        assert (answer.high_watermark, values(answer)) == (3, [b"b", b"c"])
        assert (await early).high_watermark == 2


async def test_readers_of_an_idle_partition_cost_few_ops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watermark_refresh, "MAX_AGE_SECONDS", 0.08)
    monkeypatch.setattr(watermark_refresh, "_REFRESH_SECONDS", 0.02)
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        edge.broker.delay_answer = 0.02  # less than the time left when the refresh begins
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.4
        while loop.time() < until:
            await asyncio.gather(*(edge.fetch(0) for _ in range(8)))
            await asyncio.sleep(0.001)
        assert 1 <= len(edge.broker.fetched) <= 0.4 / 0.04 + 1


async def test_watermarks_from_memory_are_at_most_a_fifth_of_a_second_old() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        await edge.produce(b"b")
        await asyncio.sleep(1.05)
        assert (await edge.fetch(0)).high_watermark == 2


async def test_a_deleted_topic_is_not_served_a_moment_longer() -> None:
    async with running_edge() as edge:
        other = Edge(edge.state)
        await edge.produce(b"old")
        await edge.with_lease()
        await other.with_lease()
        topic = edge.state.registry.find(ORG, "t", b"")
        assert topic is not None
        assert await edge.state.topics.delete(topic)
        for reader in (edge, other):
            answer = await reader.fetch(0)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await edge.state.topics.create(ORG, "t", 1)
        await edge.produce(b"new")
        for reader in (edge, other):
            assert values(await reader.fetch(0)) == [b"new"]
            gone = await reader.fetch(0, topic_id=topic.uuid)
            assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await other.reader.close()


async def test_an_answer_that_a_deletion_overtook_is_not_kept() -> None:
    async with running_edge() as edge:
        await edge.produce(b"old")
        await edge.with_lease()
        edge.broker.delay_answer = 0.1
        late = asyncio.create_task(edge.fetch(0, max_wait_ms=100, min_bytes=1 << 20))
        await asyncio.sleep(0.12)  # read, and on its way back
        topic = edge.state.registry.find(ORG, "t", b"")
        assert topic is not None
        await edge.state.topics.delete(topic)
        again = asyncio.create_task(edge.fetch(0, max_wait_ms=100, min_bytes=1 << 20))
        assert (await again).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await late
        assert (await edge.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_below_a_log_start_that_moved_nothing_is_served() -> None:
    async with running_edge() as edge:
        for value in (b"a", b"b", b"c"):
            await edge.produce(value)
        await edge.with_lease()
        topic = edge.state.registry.find(ORG, "t", b"")
        assert topic is not None
        await edge.state.topics.delete_records({topic: {0: 2}})
        assert (await edge.fetch(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(await edge.fetch(2)) == [b"c"]


async def test_a_gateway_without_answers_to_its_lease_serves_nothing_from_memory() -> None:
    async with running_edge(lease_seconds=0.3) as edge:
        await edge.produce(b"old")
        await edge.with_lease()
        edge.broker.lose_leases = True
        topic = edge.state.registry.find(ORG, "t", b"")
        assert topic is not None
        deleting = asyncio.create_task(edge.state.topics.delete(topic))
        served = 0
        while not deleting.done():
            served += bool(values(await edge.fetch(0)))
            await asyncio.sleep(0.005)
        assert served
        assert (await edge.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_bad_partition_does_not_prevent_answers_from_memory_for_the_others() -> None:
    async with running_edge() as edge:
        await edge.produce(b"a")
        await edge.with_lease()
        op = FetchOps([FetchOp("gone", 0, 0, 100), FetchOp("t", 0, 0, 1 << 20)], 5_000, 1)
        gone, here = await edge.reader.fetch(op, None)
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert values(here) == [b"a"]


async def test_without_room_in_the_cache_everything_is_still_served() -> None:
    async with running_edge(cache_bytes=0) as edge:
        for _ in range(20):
            await edge.produce(bytes(100_000))
        await edge.with_lease()
        offset = 0
        while offset < 20:
            got = values(await edge.fetch(offset))
            assert got
            offset += len(got)
