"""Compaction: Kafka's rules, one at a time."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.compaction import offset_map
from quafka_broker.partitions.errors import CorruptError, StorageError
from quafka_broker.wal.verify import verify
from quafka_mesh_ops.ops.leases import HoldLease
from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import DELETE_HORIZON, crc32c, read_header
from tests.unit.broker.compacting import COMPACT, Kept, batches_of, compacting, kept_in
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG
from tests.unit.broker.transactional_writes import end as end_transaction


def pairs(kept: list[Kept]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in kept]


@pytest.mark.parametrize("codec", list(Codec))
async def test_the_last_value_of_each_key_stays_at_its_offset(codec: int) -> None:
    async with compacting(MemoryDisk()) as broker:
        topic = await broker.topic()
        for n in range(6):
            await broker.put(
                topic, (b"a", b"a%d" % n), (b"b%d" % n, b"once"), (b"c", b"c%d" % n), codec=codec
            )
        await broker.compact(topic)
        partition = broker.partition(topic)
        expected = [(3 * n + 1, b"b%d" % n, b"once") for n in range(6)]
        expected = [*expected[:5], (15, b"a", b"a5"), expected[5], (17, b"c", b"c5")]
        assert pairs(await kept_in(broker.state, partition)) == sorted(expected)
        headers = [read_header(b) for b in await batches_of(broker.state, partition, 0)]
        assert [(h.base_offset, h.last_offset_delta, h.codec) for h in headers] == [
            (3 * n, 2, codec) for n in range(6)
        ]
        status = broker.state.compaction.status(topic, 0)
        assert status is not None
        assert status.last is not None
        assert (status.first_dirty, status.dirty_bytes, status.due) == (18, 0, False)
        assert status.last.bytes_after < status.last.bytes_before


async def test_batches_without_records_leave_gaps_and_a_read_goes_on_behind_them() -> None:
    disk = MemoryDisk()
    async with compacting(disk) as broker:
        topic, other = await broker.topic(), await broker.topic("other", {})
        for n in range(200):
            await broker.put(topic, (b"k%d" % (n % 3), b"%d" % n))
            await broker.put(other, (b"x", b"%d" % n))
        await broker.compact(topic)
        partition = broker.partition(topic)
        expected = [(n, b"k%d" % (n % 3), b"%d" % n) for n in range(197, 200)]
        assert list(partition.gaps) == [(0, 197)]
        for start in (0, 100, 196, 197):
            assert pairs(await kept_in(broker.state, partition, start)) == expected
        assert pairs(await kept_in(broker.state, partition, 198)) == expected[1:]
        assert (partition.log_start, partition.high_watermark) == (0, 200)
        assert len(await kept_in(broker.state, broker.partition(other))) == 200
        size = sum(map(len, await batches_of(broker.state, partition, 0)))
        assert partition.batches.size == size
        await broker.put(topic, (b"k0", b"new"))
    for lost in ((), ("checkpoint-",), ("checkpoint-", ".oidx")):
        again = disk.copy()
        for name in [n for n in again.files if any(part in n for part in lost)]:
            del again.files[name]
        async with compacting(again) as broker:
            found = broker.state.registry.by_name(topic.org, "t")
            assert found is not None
            partition = broker.partition(found)
            assert not broker.state.log.damages
            assert list(partition.gaps) == [(0, 197)], lost
            assert pairs(await kept_in(broker.state, partition)) == [
                *expected,
                (200, b"k0", b"new"),
            ]
            assert (partition.log_start, partition.high_watermark) == (0, 201)
            await broker.compact(found)
            left = [each for each in expected if each[1] != b"k0"]
            assert pairs(await kept_in(broker.state, partition)) == [*left, (200, b"k0", b"new")]


async def test_a_tombstone_goes_when_its_horizon_has_passed() -> None:
    async with compacting(MemoryDisk()) as broker:
        topic = await broker.topic(configs=COMPACT | {"delete.retention.ms": "1000"})
        await broker.put(topic, (b"a", b"1"), (b"b", b"1"))
        await broker.put(topic, (b"a", None), (b"c", b"1"))
        await broker.put(topic, (b"d", b"1"))
        await broker.compact(topic)
        partition = broker.partition(topic)
        assert pairs(await kept_in(broker.state, partition)) == [
            (1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1"), (4, b"d", b"1"),
        ]  # fmt: skip
        second = read_header((await batches_of(broker.state, partition, 2))[0])
        assert second.attributes & DELETE_HORIZON
        assert second.base_timestamp == broker.now_ms + 1000
        assert [kept.timestamp for kept in await kept_in(broker.state, partition)] == [
            broker.now_ms
        ] * 4
        broker.now_ms += 999
        await broker.compact(topic)
        assert len(await kept_in(broker.state, partition)) == 4
        broker.now_ms += 1
        await broker.compact(topic)
        assert [kept.offset for kept in await kept_in(broker.state, partition)] == [1, 3, 4]


async def test_records_within_the_least_lag_stay() -> None:
    async with compacting(MemoryDisk()) as broker:
        topic = await broker.topic(configs=COMPACT | {"min.compaction.lag.ms": "100"})
        for _ in range(4):
            await broker.put(topic, (b"a", b"1"))
            broker.now_ms += 50
        await broker.compact(topic)  # written at 0, 50, 100, 150; it is 200
        kept = await kept_in(broker.state, broker.partition(topic))
        assert [each.offset for each in kept] == [2, 3]


async def test_aborted_records_go_and_their_marker_follows() -> None:
    disk = MemoryDisk()
    async with compacting(disk) as broker:
        topic = await broker.topic(configs=COMPACT | {"delete.retention.ms": "0"})
        partition, log = broker.partition(topic), broker.state.log
        await broker.put(topic, (b"a", b"good"))
        await broker.put(topic, (b"a", b"bad"), producer=7, transactional=True)
        await end_transaction(log, 7, partition, commit=False)
        await broker.put(topic, (b"b", b"good"), producer=7, transactional=True)
        await end_transaction(log, 7, partition, commit=True)
        await broker.put(topic, (b"c", b"open"), producer=8, transactional=True)
        await broker.put(topic, (b"b", b"after"))
        await broker.compact(topic)
        assert [k.offset for k in await kept_in(broker.state, partition)] == [0, 3, 5, 6]
        assert partition.aborted(0, 7)
        await end_transaction(log, 8, partition, commit=True)
        for _ in range(4):
            broker.now_ms += 1
            await broker.compact(topic)
        assert [k.offset for k in await kept_in(broker.state, partition)] == [0, 5, 6]
        assert not partition.aborted(0, 8)
        offsets = [read_header(b).base_offset for b in await batches_of(broker.state, partition, 0)]
        assert offsets == [0, 5, 6, 7]


async def test_a_topic_that_is_not_compacted_stays_as_it_is() -> None:
    async with compacting(MemoryDisk()) as broker:
        topic = await broker.topic(configs={})
        await broker.put(topic, (b"a", b"1"))
        await broker.put(topic, (b"a", b"2"))
        await broker.compact(topic)
        assert len(await kept_in(broker.state, broker.partition(topic))) == 2
        assert broker.state.compaction.status(topic, 0) is None


async def test_a_full_disk_in_the_middle_of_a_pass_costs_nothing() -> None:
    disk = MemoryDisk()
    async with compacting(disk) as broker:
        topic = await broker.topic()
        for n in range(50):
            await broker.put(topic, (b"a", b"%d" % n))
        disk.room = 0
        with pytest.raises(StorageError):
            await broker.compact(topic)
        disk.room = None
        assert len(await kept_in(broker.state, broker.partition(topic))) == 50
        await broker.compact(topic)
        assert len(await kept_in(broker.state, broker.partition(topic))) == 1


async def test_a_topic_that_is_deleted_or_changed_during_a_pass() -> None:
    async with compacting(MemoryDisk()) as broker:
        topic, other = await broker.topic(), await broker.topic("other")
        for n in range(50):
            for each in (topic, other):
                await broker.put(each, (b"a", b"%d" % n))
        await asyncio.gather(
            broker.compact(topic), broker.compact(other), broker.state.topics.delete(topic)
        )
        assert len(await kept_in(broker.state, broker.partition(other))) == 1


async def test_what_is_due_is_compacted_and_a_restart_does_not_begin_anew() -> None:
    disk = MemoryDisk()
    async with compacting(disk, segment_bytes=2_000) as broker:
        topic = await broker.topic()
        await broker.topic("empty")
        for n in range(60):
            await broker.put(topic, (b"a", b"%d" % n * 20))
        status = broker.state.compaction.status(topic, 0)
        assert status is not None
        assert (status.first_dirty, status.clean_bytes, status.due) == (0, 0, True)
        assert status.cleanable_ratio == 1
        assert await broker.state.compaction.compact_due() == 1
        done = broker.state.compaction.status(topic, 0)
        assert done is not None
        assert done.first_dirty == status.cleanable_end
        assert not done.due
        assert await broker.state.compaction.compact_due() == 0
    async with compacting(disk) as broker:
        found = broker.state.registry.by_name(topic.org, "t")
        assert found is not None
        again = broker.state.compaction.status(found, 0)
        assert again is not None
        assert (again.first_dirty, again.last) == (done.first_dirty, done.last)


async def test_few_dirty_bytes_in_a_large_segment_wait() -> None:
    async with compacting(MemoryDisk(), segment_bytes=50_000) as broker:
        topic, other = await broker.topic(), await broker.topic("other", {})
        for n in range(3):
            await broker.put(topic, (b"a", b"%d" % n))
        for _ in range(60):
            await broker.put(other, (None, b"x" * 1_000))
        status = broker.state.compaction.status(topic, 0)
        assert status is not None
        assert status.due
        assert await broker.state.compaction.compact_due() == 0
        since = broker.state.compaction._due_since
        since.update({id_: at - 3_600 for id_, at in since.items()})
        assert await broker.state.compaction.compact_due() == 1


async def test_an_overdue_record_seals_the_active_segment_and_is_compacted_in_the_same_run() -> (
    None
):
    configs = COMPACT | {"max.compaction.lag.ms": "1000", "min.cleanable.dirty.ratio": "1"}
    async with compacting(MemoryDisk()) as broker:
        topic = await broker.topic(configs=configs)
        await broker.put(topic, (b"a", b"1"))
        await broker.put(topic, (b"a", b"2"))
        assert await broker.state.compaction.compact_due() == 0
        broker.now_ms += 1_001
        assert await broker.state.compaction.compact_due() == 1
        assert [k.offset for k in await kept_in(broker.state, broker.partition(topic))] == [1]


async def test_the_last_batch_of_a_producer_stays_for_its_sequences() -> None:
    disk = MemoryDisk()
    async with compacting(disk) as broker:
        topic = await broker.topic()
        for n in range(3):
            await broker.put(topic, (b"a", b"%d" % n), producer=5, sequence=n)
        await broker.put(topic, (b"a", b"last"))
    async with compacting(disk.crashed()) as broker:  # producers come from the log
        found = broker.state.registry.by_name(topic.org, "t")
        assert found is not None
        await broker.compact(found)
        headers = [
            read_header(b) for b in await batches_of(broker.state, broker.partition(found), 0)
        ]
        assert [(h.base_offset, h.record_count, h.base_sequence) for h in headers] == [
            (2, 0, 2), (3, 1, -1),
        ]  # fmt: skip


async def test_an_old_segment_without_entries_of_a_partition_is_not_looked_at_again() -> None:
    async with compacting(MemoryDisk(), segment_bytes=2_000) as broker:
        topic, other = await broker.topic(), await broker.topic("other", {})
        for n in range(60):
            await broker.put(topic, (b"a", b"%d" % n))
            await broker.put(other, (None, b"x" * 50))
        partition = broker.partition(topic)
        rewriter = broker.state.compaction._open_rewriter
        before = rewriter.sealed_with(partition)
        assert len(before) > 3
        await broker.compact(topic)
        assert len(rewriter.sealed_with(partition)) == 1
        assert len(rewriter.sealed_with(broker.partition(other))) >= len(before)


async def test_wal_verify_finds_a_compacted_log_whole() -> None:
    disk = MemoryDisk()
    async with compacting(disk, segment_bytes=2_000) as broker:
        topic = await broker.topic()
        partition = broker.partition(topic)
        for n in range(12):
            await broker.put(topic, (b"a", b"%d" % n), (b"b", None), producer=7, transactional=True)
            await end_transaction(broker.state.log, 7, partition, commit=bool(n % 3))
            if n % 4 == 3:
                await broker.compact(topic)
    reports = list(verify(disk))
    assert len(reports) > 2
    assert not [r for r in reports if r.damages or r.torn or r.index_fault]


async def test_damage_of_a_compacted_segment_is_reported_and_its_partition_not_compacted() -> None:
    disk = MemoryDisk()
    async with compacting(disk, segment_bytes=2_000) as broker:
        topic = await broker.topic()
        for n in range(60):
            await broker.put(topic, (b"k%d" % (n % 20), b"%d" % n * 20))
        await broker.compact(topic)
        for n in range(60, 70):
            await broker.put(topic, (b"k%d" % (n % 20), b"%d" % n * 20))
        kept = await kept_in(broker.state, broker.partition(topic))
    file = disk.files[
        next(n for n in sorted(disk.files) if n.endswith(".log") and b"k10" in disk.files[n].data)
    ]
    at = file.data.index(b"5050505050")
    file.data[at] ^= 1
    async with compacting(disk, segment_bytes=2_000) as broker:
        found = broker.state.registry.by_name(topic.org, "t")
        assert found is not None
        partition = broker.partition(found)
        reader = broker.state.log.reader
        lost = next(each.offset for each in kept if each.value == b"50" * 20)
        with pytest.raises(CorruptError):
            await reader.read(partition, lost, 1 << 20, at_least_one=True)
        await broker.compact(found)
        after = await kept_in(broker.state, partition, lost + 1)
        assert after == [each for each in kept if each.offset > lost]


async def test_a_batch_that_cannot_be_read_stops_only_its_own_partition() -> None:
    async with compacting(MemoryDisk(), segment_bytes=2_000) as broker:
        topic, other = await broker.topic(), await broker.topic("other")
        garbled = build_batch([Record(0, broker.now_ms, b"a", b"x" * 40, [])], codec=Codec.ZSTD)
        garbled[-8:] = bytes(8)
        garbled[17:21] = crc32c(garbled[21:]).to_bytes(4, "big")
        log = broker.state.log
        await log.queue.append(
            broker.partition(topic), [(read_header(garbled), memoryview(garbled))]
        )
        for n in range(60):
            await broker.put(topic, (b"a", b"%d" % n * 20))
            await broker.put(other, (b"a", b"%d" % n * 20))
        assert await broker.state.compaction.compact_due() == 1
        assert await broker.state.compaction.compact_due() == 0
        await broker.compact(other)
        assert len(await kept_in(broker.state, broker.partition(other))) == 1
        assert len(await batches_of(broker.state, broker.partition(topic), 0)) == 61


async def test_a_damaged_entry_of_another_topic_stops_only_the_partitions_beside_it() -> None:
    disk = MemoryDisk()
    async with compacting(disk, segment_bytes=2_000) as broker:
        topic, other, beside = (
            await broker.topic(), await broker.topic("other"), await broker.topic("beside", {})
        )  # fmt: skip
        await broker.put(beside, (None, b"damaged"))
        for n in range(60):
            await broker.put(topic, (b"a", b"%d" % n * 20))
        for n in range(60):
            await broker.put(other, (b"a", b"%d" % n * 20))
        file = next(
            f for name, f in disk.files.items() if name.endswith(".log") and b"damaged" in f.data
        )
        file.data[file.data.index(b"damaged")] ^= 1
        with pytest.raises(StorageError):
            await broker.compact(topic)
        await broker.compact(topic)  # it is known now
        await broker.compact(other)
        assert len(await kept_in(broker.state, broker.partition(other))) == 1
        assert len(await kept_in(broker.state, broker.partition(topic))) == 60


async def test_keys_that_do_not_fit_are_left_to_the_next_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_map, "_FIRST_KEYS", 16)
    async with compacting(MemoryDisk(), segment_bytes=3_000) as broker:
        object.__setattr__(broker.state.configs.broker, "log_cleaner_dedupe_buffer_size", 56 * 20)
        topic = await broker.topic()
        expected: dict[bytes, int] = {}
        for n in range(200):
            key = b"%d" % (n * 7 % 90)
            expected[key] = await broker.put(topic, (key, b"%d" % n))
        await broker.compact(topic)
        kept = await kept_in(broker.state, broker.partition(topic))
        assert [each.offset for each in kept] == sorted(expected.values())


async def test_gateways_with_a_lease_hear_of_removed_batches() -> None:
    async with compacting(MemoryDisk(), lease_seconds=30) as broker:
        topic, other = await broker.topic(), await broker.topic("other")
        for n in range(3):
            await broker.put(topic, (b"a", b"%d" % n))
        leases = broker.state.leases
        asked = HoldLease(b"gateway", b"", 0)
        granted = await leases.hold(ORG, "node", asked)
        assert granted.valid_ms
        stamp = leases.stamp()
        waiting = asyncio.create_task(
            leases.hold(ORG, "node", HoldLease(b"gateway", granted.incarnation, granted.serial))
        )
        work = asyncio.create_task(broker.compact(topic))
        news = await waiting
        assert [(change.topic, change.partition) for change in news.changes] == [("t", 0)]
        assert len(await kept_in(broker.state, broker.partition(topic))) == 3
        assert not work.done()
        confirmed = HoldLease(b"gateway", news.incarnation, news.serial)
        holding = asyncio.create_task(leases.hold(ORG, "node", confirmed))
        await work
        leases.drain()
        await holding
        assert not leases.unchanged_since(stamp)
        assert len(await kept_in(broker.state, broker.partition(topic))) == 1
        assert len(await kept_in(broker.state, broker.partition(other))) == 0
