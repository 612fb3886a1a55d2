"""Topics of Kafka's folders: adopted, read, followed."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from quafka_broker.ops import (
    epoch_ends,
    fetch,
    group_lag,
    list_offsets,
    log_dirs,
    offsets,
    probe,
    produce,
    topics,
    transactions,
)
from quafka_broker.sources.kafka.errors import AdoptionError
from quafka_broker.sources.metrics import source_families
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.admin import DescribeLogDir, PartitionsByTopic
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_mesh_ops.ops.lag import GroupLag
from quafka_mesh_ops.ops.leases import HoldLease
from quafka_mesh_ops.ops.offsets import EpochEndOp, EpochEndOps, ListOffsetsOp, ListOffsetsOps
from quafka_mesh_ops.ops.probe import Probe
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, ProduceOp, ProduceOps
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.ops.transactions import (
    AddPartitions,
    InitTransactions,
    TransactionalProducer,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.records import TRANSACTIONAL
from tests.support.kafka_folder import KafkaFolder, kafka_batch, marker
from tests.unit.broker.kafka_sources import eventually, get, serving, values
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, ORG, batch_of, context, running_state


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaFolder:
    return KafkaFolder(tmp_path / "kafka")


async def list_one(state: BrokerState, timestamp: int, committed: bool = False) -> tuple[int, ...]:
    op = ListOffsetsOps([ListOffsetsOp("t", 0, timestamp)], int(committed))
    (found,) = (await list_offsets.handle(state, context(), op)).partitions
    assert found.error_code == 0
    return found.offset, found.timestamp, found.leader_epoch


# --- reading ----------------------------------------------------------------------------------


async def test_topics_keep_their_names_ids_partitions_and_offsets(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(5, b"a", b"b"), segment=5)
    kafka.append("t", 0, kafka_batch(7, b"c"), segment=7)
    kafka.append("t", 1)
    kafka.name("t", b"i" * 16, 2)
    kafka.append("other", 0, kafka_batch(0, b"x"))
    kafka.append("__consumer_offsets", 0)
    async with serving(kafka.path) as state:
        described = await topics.describe(state, context(), DescribeTopics())
        assert [(each.topic, each.partitions) for each in described.topics] == [
            ("other", 1), ("t", 2),
        ]  # fmt: skip
        assert described.topics[1].topic_id == b"i" * 16
        assert described.topics[0].topic_id not in (b"", bytes(16))
        answer = await get(state, 5)
        assert values(answer) == [(5, b"a"), (6, b"b"), (7, b"c")]
        assert (answer.high_watermark, answer.log_start_offset) == (8, 5)
        by_id = FetchOps([FetchOp("", 0, 7, EVERYTHING, topic_id=b"i" * 16)])
        (found,) = (await fetch.handle(state, context(), by_id)).partitions
        assert values(found) == [(7, b"c")]
        empty = await get(state, 0, partition=1, wait=0)
        assert (values(empty), empty.high_watermark) == ([], 0)
        for offset in (0, 4, 9):
            assert (await get(state, offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        sizes = await log_dirs.describe(state, context(), DescribeLogDir())
        assert [each.topic for each in sizes.topics] == ["other", "t"]


async def test_limits(kafka: KafkaFolder) -> None:
    batches = [kafka_batch(number, b"x" * 100) for number in range(4)]
    kafka.append("t", 0, *batches)
    size = len(batches[0])
    async with serving(kafka.path) as state:
        await get(state)
        for most, count in ((1, 1), (size, 1), (2 * size, 2), (3 * size - 1, 2), (EVERYTHING, 4)):
            assert len((await get(state, max_bytes=most)).records) == count
        second = [FetchOp("t", 0, 0, EVERYTHING), FetchOp("t", 0, 1, 1)]
        op = FetchOps(second, max_wait_ms=0, min_bytes=1, max_bytes=size)
        found = (await fetch.handle(state, context(), op)).partitions
        assert [len(each.records) for each in found] == [1, 0]


async def test_compaction_leaves_gaps(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(3, b"a"), kafka_batch(10, b"b", span=5))
    kafka.append("t", 0, segment=30)
    async with serving(kafka.path) as state:
        for offset in (0, 3):
            assert values(await get(state, offset)) == [(3, b"a"), (10, b"b")]
        for offset in (4, 9, 14):
            assert [o for o, _ in values(await get(state, offset))] == [10]
        # The last records are gone: the first fetch finds that out, the next ones park.
        await get(state, 15)
        both = [asyncio.create_task(get(state, 15, committed=c)) for c in (False, True)]
        await asyncio.sleep(0.2)
        assert not any(waiting.done() for waiting in both)
        kafka.append("t", 0, kafka_batch(30, b"c"), segment=30)
        assert [values(await waiting) for waiting in both] == [[(30, b"c")]] * 2


async def test_read_committed(kafka: KafkaFolder) -> None:
    def transactional(base: int, producer: int) -> bytes:
        return kafka_batch(base, b"v", producer=(producer, 0, 0), attributes=TRANSACTIONAL)

    kafka.append(
        "t", 0, transactional(0, 1), marker(1, 1, commit=True), transactional(2, 2),
        marker(3, 2, commit=False), transactional(4, 3), kafka_batch(5, b"x"),
    )  # fmt: skip
    async with serving(kafka.path) as state:
        answer = await get(state, committed=True)
        assert (answer.high_watermark, answer.last_stable_offset) == (6, 4)
        aborted = answer.aborted_transactions or []
        assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [(2, 2, 3)]
        assert len(answer.records) == 4
        assert len((await get(state)).records) == 6
        assert (await get(state)).aborted_transactions is None
        assert (await list_one(state, -1))[0] == 6
        assert (await list_one(state, -1, committed=True))[0] == 4
        waiting = asyncio.create_task(get(state, 4, committed=True))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        kafka.append("t", 0, marker(6, 3, commit=True))
        assert len((await waiting).records) == 3


async def test_times_and_epochs(kafka: KafkaFolder) -> None:
    kafka.append(
        "t", 0, kafka_batch(0, b"a", timestamp=10, epoch=1), kafka_batch(1, b"b", timestamp=30),
        kafka_batch(2, b"c", timestamp=20, epoch=4),
    )  # fmt: skip
    kafka.epochs("t", 0, (1, 0), (4, 2))
    async with serving(kafka.path) as state:
        assert await list_one(state, -2) == (0, -1, 1)
        assert await list_one(state, -1) == (3, -1, 4)
        assert await list_one(state, 11) == (1, 30, 1)
        assert await list_one(state, -3) == (1, 30, 1)
        assert await list_one(state, 31) == (-1, -1, -1)
        ends = EpochEndOps([EpochEndOp("t", 0, epoch) for epoch in (-1, 0, 1, 2, 4, 5)])
        found = (await epoch_ends.handle(state, context(), ends)).partitions
        assert [(each.end.leader_epoch, each.end.end_offset) for each in found] == [
            (-1, -1), (0, 0), (1, 2), (1, 2), (4, 3), (-1, -1),
        ]  # fmt: skip
        diverging = (await get(state, 3, last_fetched_epoch=1)).diverging_epoch
        assert diverging is not None
        assert (diverging.leader_epoch, diverging.end_offset) == (1, 2)
        assert not (await get(state, 0, current_leader_epoch=1)).error_code
        newer = await get(state, 0, current_leader_epoch=5)
        assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_damage_is_reported(kafka: KafkaFolder) -> None:
    batches = [kafka_batch(0, b"a"), kafka_batch(1, b"b" * 50), kafka_batch(2, b"c")]
    path = kafka.append("t", 0, *batches)
    kafka.append("t", 0, segment=3)
    kafka.checkpoint("recovery-point-offset-checkpoint", {("t", 0): 3})
    data = bytearray(path.read_bytes())
    data[len(batches[0]) + 80] ^= 1
    path.write_bytes(data)
    async with serving(kafka.path) as state:
        assert values(await get(state)) == [(0, b"a")]
        assert (await get(state, 1)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert values(await get(state, 2)) == [(2, b"c")]


# --- following --------------------------------------------------------------------------------


async def test_growth_wakes_a_parked_fetch(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    async with serving(kafka.path) as state:
        waiting = asyncio.create_task(get(state, 1))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        torn = kafka_batch(1, b"b" * 500)
        path = kafka.append("t", 0, torn[:300])
        await asyncio.sleep(0.2)
        assert not waiting.done()
        with path.open("ab") as file:
            file.write(torn[300:])
        assert values(await asyncio.wait_for(waiting, 30)) == [(1, b"b" * 500)]
        waiting = asyncio.create_task(get(state, 2))
        kafka.append("t", 0, kafka_batch(2, b"c"), segment=2)
        assert values(await asyncio.wait_for(waiting, 30)) == [(2, b"c")]
        kafka.append("t", 0, kafka_batch(3, b"d"), segment=2)
        assert (await list_one(state, -1))[0] in (3, 4)
        await asyncio.sleep(0.15)
        assert (await list_one(state, -1))[0] == 4
        assert values(await get(state, 3, wait=0)) == [(3, b"d")]


async def test_a_fetch_waits_for_its_min_bytes(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a" * 200))
    async with serving(kafka.path) as state:
        waiting = asyncio.create_task(get(state, 0, min_bytes=400))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        kafka.append("t", 0, kafka_batch(1, b"b" * 200))
        assert len((await asyncio.wait_for(waiting, 30)).records) == 2


async def test_retention_moves_the_log_start_and_gateways_are_informed(kafka: KafkaFolder) -> None:
    first = kafka.append("t", 0, kafka_batch(0, b"a"))
    kafka.append("t", 0, kafka_batch(1, b"b"), kafka_batch(2, b"c"), segment=1)
    async with serving(kafka.path) as state:
        assert len(values(await get(state))) == 3
        held = await state.leases.hold(ORG, "peer", HoldLease(b"h" * 16))
        first.unlink()
        await asyncio.sleep(0.15)
        assert (await get(state, 0, wait=0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        news = await state.leases.hold(
            ORG, "peer", HoldLease(b"h" * 16, held.incarnation, held.serial)
        )
        assert [(each.topic, each.partition) for each in news.changes] == [("t", 0)]
        kafka.checkpoint("log-start-offset-checkpoint", {("t", 0): 2})
        await eventually(lambda: state.kafka is not None and _start(state) == 2)
        assert values(await get(state, 2)) == [(2, b"c")]
        assert (await list_one(state, -2))[0] == 2


def _start(state: BrokerState) -> int:
    topic = state.registry.by_name(ORG, "t")
    assert topic is not None
    partition = state.sources.partition(topic, 0)
    partition.unready()
    return partition.log_start


async def test_topics_come_grow_and_go(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    kafka.name("t", b"1" * 16)
    async with serving(kafka.path) as state:

        def partitions(name: str) -> int:
            found = state.registry.by_name(ORG, name)
            return 0 if found is None else found.partitions

        commit = CommitOffsets("g", -1, "", "", [CommitOffset("t", 0, 1)])
        assert set((await offsets.commit(state, context(), commit)).partitions) == {0}
        kafka.append("late", 0, kafka_batch(0, b"x"))
        kafka.append("t", 1, kafka_batch(0, b"y"))
        await eventually(lambda: partitions("late") == 1 and partitions("t") == 2)
        assert values(await get(state, topic="late")) == [(0, b"x")]
        assert values(await get(state, partition=1)) == [(0, b"y")]
        waiting = asyncio.create_task(get(state, 1))
        for partition in (0, 1):
            shutil.rmtree(kafka.path / f"t-{partition}")
        await eventually(lambda: partitions("t") == 0)
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR
        assert (await asyncio.wait_for(waiting, 30)).error_code in gone
        kafka.append("t", 0, kafka_batch(0, b"again"))
        kafka.name("t", b"2" * 16)
        await eventually(lambda: partitions("t") == 1)
        assert values(await get(state)) == [(0, b"again")]
        entry = state.groups.find(ORG, "g")
        assert entry is None or not entry.offsets


async def test_a_folder_that_cannot_be_read_costs_only_its_partition(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    kafka.append("t", 1, kafka_batch(0, b"b"))
    async with serving(kafka.path) as state:
        assert values(await get(state, partition=1)) == [(0, b"b")]
        hidden = kafka.path / "t-1"
        hidden.rename(kafka.path / "hidden")
        await asyncio.sleep(0.15)
        answer = await get(state, 1, partition=1, wait=0)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (folders,) = (await probe.handle(state, context(), Probe())).servers or []
        assert (folders.kind, folders.topics) == ("kafka", 1)
        assert folders.problem.startswith("partition t-1: ")
        assert {family.name for family in source_families(state.redis, state.kafka)} >= {
            "quafka_kafka_topics"
        }
        assert values(await get(state)) == [(0, b"a")]
        (kafka.path / "hidden").rename(hidden)
        async with asyncio.timeout(5):
            while (await get(state, 0, partition=1)).error_code:
                await asyncio.sleep(0.1)


async def test_a_partition_without_a_replica_here_costs_only_itself(kafka: KafkaFolder) -> None:
    kafka.append("t", 1, kafka_batch(0, b"a"))
    async with serving(kafka.path) as state:
        assert values(await get(state, partition=1)) == [(0, b"a")]
        assert (await get(state)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        kafka.append("t", 0, kafka_batch(0, b"b"))
        async with asyncio.timeout(5):
            while (await get(state, wait=0)).error_code:
                await asyncio.sleep(0.1)
        assert values(await get(state)) == [(0, b"b")]


@pytest.mark.parametrize("seed", range(3))
async def test_a_reader_of_a_live_folder_sees_every_record_once(
    kafka: KafkaFolder, seed: int
) -> None:
    """Writes tear at any byte, segments roll, the first ones are deleted behind the reader."""
    chance = random.Random(seed)
    segments = [0]
    written = read = 0
    kafka.append("t", 0)

    def written_to(offset: int) -> bytes:
        count = chance.randint(1, 4)
        return kafka_batch(offset, *(b"%d" % (offset + n) * 30 for n in range(count)))

    async def write() -> None:
        nonlocal written
        for _ in range(60):
            if written > segments[-1] and chance.random() < 0.15:
                segments.append(written)
            batch = written_to(written)
            torn = chance.randrange(len(batch))
            kafka.append("t", 0, batch[:torn], segment=segments[-1])
            await asyncio.sleep(chance.choice((0, 0, 0.01, 0.04)))
            kafka.append("t", 0, batch[torn:], segment=segments[-1])
            written += int.from_bytes(batch[57:61], "big")
            while len(segments) > 2 and segments[1] <= read and chance.random() < 0.5:
                (kafka.path / "t-0" / f"{segments.pop(0):020}.log").unlink()

    async with serving(kafka.path) as state:
        writing = asyncio.create_task(write())
        async with asyncio.timeout(30):
            while read < written or not writing.done():
                for offset, value in values(await get(state, read, wait=100)):
                    if offset >= read:
                        assert (offset, value) == (read, b"%d" % offset * 30)
                        read += 1
        await writing


# --- groups, writes, starts -------------------------------------------------------------------


async def test_groups_keep_their_offsets_in_the_log(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a", b"b", b"c"))
    disk = MemoryDisk()
    async with serving(kafka.path, disk=disk) as state:
        commit = CommitOffsets("g", -1, "", "", [CommitOffset("t", 0, 1)])
        assert set((await offsets.commit(state, context(), commit)).partitions) == {0}
    async with serving(kafka.path, disk=disk) as state:
        lag = (await group_lag.handle(state, context(), GroupLag(["g"]))).groups[0]
        assert [(each.committed, each.records) for each in lag.partitions or []] == [(1, 2)]
    async with running_state(disk) as state:
        assert state.registry.by_name(ORG, "t") is None
        await state.log.checkpoint()
    async with serving(kafka.path, disk=disk) as state:
        lag = (await group_lag.handle(state, context(), GroupLag(["g"]))).groups[0]
        assert [(each.committed, each.records) for each in lag.partitions or []] == [(1, 2)]


async def test_writes_are_refused(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    async with serving(kafka.path) as state:
        op = ProduceOps([ProduceOp("t", 0, batch_of(b"x"))])
        (answer,) = (await produce.handle(state, context(), op)).partitions
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert "read only" in (answer.error_message or "")


async def test_what_cannot_be_adopted(kafka: KafkaFolder, tmp_path: Path) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1)
        config = replace(state.configs.broker, kafka_log_dirs=(kafka.path,))
        state.configs.broker = config
        with pytest.raises(AdoptionError, match=r"the same name: t$"):
            await state.adopt_kafka()
        state.configs.broker = replace(config, kafka_log_dirs=(tmp_path,))
        with pytest.raises(AdoptionError, match=r"meta\.properties"):
            await state.adopt_kafka()
        kafka.append("u", 7)
        shutil.rmtree(kafka.path / "t-0")
        state.configs.broker = replace(config, max_partitions_per_org=5)
        with pytest.raises(AdoptionError, match="partitions"):
            await state.adopt_kafka()


async def test_a_server_properties_names_the_folders(kafka: KafkaFolder, tmp_path: Path) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={kafka.path}{os.linesep}")
    async with serving(properties) as state:
        assert values(await get(state)) == [(0, b"a")]


async def test_transactions_are_refused(kafka: KafkaFolder) -> None:
    """With an error that producers do not retry."""
    kafka.append("t", 0, kafka_batch(0, b"a"))
    async with serving(kafka.path) as state:
        await state.topics.create(ORG, "own", 1)
        started = await transactions.init(
            state, context(), InitTransactions(TransactionalProducer("tx", -1, -1), 10_000)
        )
        producer = TransactionalProducer("tx", started.producer_id, started.producer_epoch)
        added = [PartitionsByTopic(name, [0]) for name in ("own", "t", "no-such")]
        answer = await transactions.add_partitions(state, context(), AddPartitions(producer, added))
        assert answer.partitions == [
            ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.POLICY_VIOLATION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]  # fmt: skip
