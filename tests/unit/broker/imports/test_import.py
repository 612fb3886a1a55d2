"""Topics of Kafka's folders become topics of a log: the same records at the same offsets."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quafka.cli import main
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups.table import Committed, offsets_event
from quafka_broker.imports.errors import ImportRefusedError
from quafka_broker.imports.importer import import_topics
from quafka_broker.kafka_logs.log_folders import KafkaFolders
from quafka_broker.leases import Leases
from quafka_broker.state import BrokerState
from quafka_broker.topics.adopted import adopted_generation
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_broker.wal.verify import verify
from quafka_proto.log_format import REWRITTEN
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
    empty_batch,
    read_header,
)
from quafka_telemetry.startup import StartupError
from tests.support.kafka_folders import COMPACTED, DELETED, TRANSACTIONS, TRIMMED, row
from tests.unit.broker.kafka_logs.conftest import Recorded, kafka_folders

__all__ = ["kafka_folders"]
NOW = 1_700_000_000_000


@asynccontextmanager
async def opened(data: Path, segment_bytes: int = 1 << 30) -> AsyncGenerator[BrokerState]:
    """The log as a broker opens it."""
    log = Log(RealDisk(data / "wal"), FsyncPolicy(), segment_bytes)
    state = BrokerState(BrokerConfig(data=data), log, leases=Leases(0))
    log.open(state.producers)
    log.start()
    try:
        await state.replay_registry()
        await state.replay_groups()
        assert not log.damages
        yield state
    finally:
        await log.close()


async def read(state: BrokerState, name: str, number: int) -> list[Record]:
    """All records, with checks of each batch's place."""
    topic = state.registry.by_name(1, name)
    assert topic is not None
    partition = state.log.partitions.get(topic.partition_id(number))
    offset, found = partition.log_start, list[Record]()
    while offset < partition.high_watermark:
        batches = await state.log.reader.read(partition, offset, 300, at_least_one=True)
        for batch in batches:
            header = read_header(batch)
            assert header.base_offset <= offset <= header.last_offset
            assert not header.attributes & (TRANSACTIONAL | CONTROL)
            offset = header.last_offset + 1
            found += [r for r in iter_records(batch) if r.offset >= partition.log_start]
    return found


async def check(data: Path, expected: Any) -> None:
    """The log has what Kafka's consumers read, and no damage."""
    async with opened(data) as state:
        for name, topic in expected["topics"].items():
            ours = state.registry.by_name(1, name)
            assert ours is not None
            assert ours.uuid.hex() == topic["id"]
            for number, partition in enumerate(topic["partitions"]):
                bounds = state.log.partitions.offsets(ours.partition_id(number))
                assert bounds == (partition["start"], partition["end"])
                found = [row(record) for record in await read(state, name, number)]
                committed = set(partition["committed"])
                records = [r for r in partition["records"] if r[0] in committed]
                # What is after an open transaction is committed, but Kafka does not show it yet.
                stable = max(committed, default=-1)
                assert [r for r in found if r[0] <= stable] == records
        assert state.registry.by_name(1, DELETED) is None
        assert state.registry.by_name(1, "__consumer_offsets") is None
    for report in verify(RealDisk(data / "wal")):
        assert (report.damages, report.index_fault, report.torn) == ([], None, 0)


@pytest.mark.parametrize("name", ["clean", "killed"])
async def test_all_topics(kafka_folders: Recorded, tmp_path: Path, name: str) -> None:
    folders = KafkaFolders([kafka_folders.folder / name])
    reports = await import_topics(folders, tmp_path / "data", verify=True)
    assert {report.name for report in reports} == set(kafka_folders.expected["topics"])
    await check(tmp_path / "data", kafka_folders.expected)
    async with opened(tmp_path / "data") as state:
        topic = state.registry.by_name(1, COMPACTED)
        assert topic is not None
        assert topic.configs["cleanup.policy"] == "compact"
        topic = state.registry.by_name(1, "codec-zstd")
        assert topic is not None
        assert state.producers.dump(topic.partition_id(0))
        after = [r.value for r in await read(state, TRANSACTIONS, 0)]
        assert b"after" in after
        assert b"open" not in after
    again = await import_topics(folders, tmp_path / "data", verify=True)
    assert [(r.records, r.bytes, r.is_new) for r in again] == [(0, 0, False)] * len(again)
    await check(tmp_path / "data", kafka_folders.expected)


class StopError(Exception):
    """In place of a crash."""


async def test_an_interrupted_import_goes_on(kafka_folders: Recorded, tmp_path: Path) -> None:
    data = tmp_path / "data"
    folders = KafkaFolders([kafka_folders.folder / "clean"])
    calls = 0

    def stop(_done: int, _all: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise StopError

    for _ in range(30):
        try:
            await import_topics(folders, data, verify=True, progress=stop)
        except StopError:
            with pytest.raises(StartupError, match="did not finish: repeat `quafka import`"):
                DataFolder(data).hold()
        else:
            break
    await import_topics(folders, data, verify=True)
    DataFolder(data).hold()
    await check(data, kafka_folders.expected)


async def test_a_running_kafka_is_caught_up_with(
    kafka_folders: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records behind an open transaction follow when Kafka has stopped."""
    data = tmp_path / "data"
    source = KafkaFolders([kafka_folders.folder / "killed"])
    end = source.open(TRANSACTIONS, 0).last_stable_offset
    with monkeypatch.context() as running:
        running.setattr(KafkaFolders, "running", True)
        reports = await import_topics(source, data, patterns=["trans*"], verify=True)
    assert [report.open for report in reports] == [[0]]
    async with opened(data) as state:
        topic = state.registry.by_name(1, TRANSACTIONS)
        assert topic is not None
        assert state.log.partitions.offsets(topic.partition_id(0))[1] == end
    await import_topics(source, data, verify=True)
    await check(data, kafka_folders.expected)


async def test_a_decided_transaction_is_committed(
    kafka_folders: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = KafkaFolders([kafka_folders.folder / "clean"])
    (producer,) = folders.open(TRANSACTIONS, 0).view.open_transactions
    monkeypatch.setattr(KafkaFolders, "decided", lambda _: {producer: {(TRANSACTIONS, 0)}})
    await import_topics(folders, tmp_path / "data", verify=True)
    async with opened(tmp_path / "data") as state:
        assert b"open" in [r.value for r in await read(state, TRANSACTIONS, 0)]


def write_folder(folder: Path, topic: str, *batches: bytes | bytearray) -> None:
    """A folder of a broker with ZooKeeper."""
    path = folder / f"{topic}-0"
    path.mkdir(parents=True, exist_ok=True)
    (folder / "meta.properties").write_text("version=0\nbroker.id=1\n")
    first = int.from_bytes(batches[0][:8], "big") if batches else 0
    (path / f"{first:020}.log").write_bytes(b"".join(batches))


def batch(first: int, *offsets: int, last: int | None = None) -> bytes:
    """A batch as compaction leaves it: its bounds stay."""
    made = build_batch((Record(o, NOW, b"k", b"%d" % o, []) for o in offsets), first,
                       keep_offsets=True)  # fmt: skip
    if last is None:
        return bytes(made)
    header: BatchHeader = read_header(made)._replace(last_offset_delta=last - first)
    return bytes(assemble(header, made[BATCH_HEADER_SIZE:]))


async def test_gaps_of_all_kinds(tmp_path: Path) -> None:
    """Sparse batches, empty ones, and gaps between them, up to billions of offsets."""
    billions = 5_000_000_000
    write_folder(
        tmp_path / "kafka", "sparse",
        batch(3, 4, 6, last=9), empty_batch(10, 5), batch(20, 20), batch(billions, billions + 3),
    )  # fmt: skip
    (tmp_path / "kafka" / "log-start-offset-checkpoint").write_text("0\n1\nsparse 0 5\n")
    data = tmp_path / "data"
    folders = KafkaFolders([tmp_path / "kafka"])
    (report,) = await import_topics(folders, data, verify=True)
    assert report.records == 4
    async with opened(data) as state:
        topic = state.registry.by_name(1, "sparse")
        assert topic is not None
        partition = state.log.partitions.get(topic.partition_id(0))
        assert (partition.log_start, partition.high_watermark) == (5, billions + 4)
        assert [r.offset for r in await read(state, "sparse", 0)] == [6, 20, billions + 3]
        assert len(state.log.partitions.get(topic.partition_id(0)).dump().ids) < 2_000_000
        for offset, base in ((5, 3), (12, 10), (17, 15), (21, 21), (billions - 1, None)):
            (first,) = await state.log.reader.read(partition, offset, 1, at_least_one=True)
            header = read_header(first)
            assert header.base_offset <= offset <= header.last_offset
            assert base in (None, header.base_offset)
    for verified in verify(RealDisk(data / "wal")):
        assert not verified.damages


async def test_gaps_survive_rewriting_and_a_restore(
    kafka_folders: Recorded, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    await import_topics(KafkaFolders([kafka_folders.folder / "clean"]), data)
    async with opened(data, segment_bytes=1_000) as state:
        dropped = state.registry.by_name(1, "codec-none")
        assert dropped is not None
        assert await state.topics.delete(dropped)  # its event begins a new segment
        before = {name: await read(state, name, 0) for name in (COMPACTED, TRANSACTIONS)}
        rewrite = state.log.rewrite_task(RewritePolicy(bytes_per_second=1 << 40), lambda: 1)
        assert await rewrite.run_once()
        await rewrite.close()
        assert state.log.segments()[0].kind == REWRITTEN
        for name, records in before.items():
            assert await read(state, name, 0) == records
    for report in verify(RealDisk(data / "wal")):
        assert not report.damages
    snapshot, restored = tmp_path / "snapshot", tmp_path / "restored"
    assert (
        await asyncio.to_thread(main, ["snapshot", "create", str(snapshot), "--data", str(data)])
        == 0
    )
    assert await asyncio.to_thread(main, ["snapshot", "verify", str(snapshot)]) == 0
    assert (
        await asyncio.to_thread(
            main, ["snapshot", "restore", str(snapshot), "--data", str(restored)]
        )
        == 0
    )
    async with opened(restored) as state:
        for name, records in before.items():
            assert await read(state, name, 0) == records


async def test_offsets_in_adopted_topics_are_kept(kafka_folders: Recorded, tmp_path: Path) -> None:
    """A broker that has served the folders in place has its groups' offsets in its log."""
    data = tmp_path / "data"
    folders = KafkaFolders([kafka_folders.folder / "clean"])
    uuid = bytes.fromhex(kafka_folders.expected["topics"]["codec-none"]["id"])
    adopted = Committed(adopted_generation(uuid), 50, 3, "m", NOW)
    other = Committed(adopted_generation(bytes(16)), 7, 3, "", NOW)
    group = (1, "readers")
    await import_topics(folders, data, patterns=["empty"])
    async with opened(data) as state:
        offsets = {("codec-none", 0): adopted, ("elsewhere", 0): other}
        await state.groups.journal.append(offsets_event(group, offsets))

    def stop(_done: int, _all: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        await import_topics(folders, data, progress=stop)
    with pytest.raises(ImportRefusedError, match="an import for org 1 did not finish"):
        await import_topics(folders, data, org=2)
    reports = await import_topics(folders, data, patterns=["empty"])
    assert {report.name for report in reports} == set(kafka_folders.expected["topics"])
    async with opened(data) as state:
        topic = state.registry.by_name(1, "codec-none")
        assert topic is not None
        assert state.groups.offsets.of(group) == {
            ("codec-none", 0): Committed(topic.generation, 50, -1, "m", NOW),
            ("elsewhere", 0): other,
        }


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2}', '{"version": 1, "topics": []}'])
async def test_a_marker_that_cannot_be_read(
    kafka_folders: Recorded, tmp_path: Path, content: str
) -> None:
    (tmp_path / "importing").write_text(content)
    with pytest.raises(ImportRefusedError, match="importing is"):
        await import_topics(KafkaFolders([kafka_folders.folder / "clean"]), tmp_path)


async def test_other_topics_are_refused(tmp_path: Path) -> None:
    data, kafka = tmp_path / "data", tmp_path / "kafka"
    write_folder(kafka, "orders", batch(0, 0, 1), batch(2, 2))
    await import_topics(KafkaFolders([kafka]), data)
    with pytest.raises(ImportRefusedError, match="no topic matches 'payment'"):
        await import_topics(KafkaFolders([kafka]), data, patterns=["payment"])
    # Without ids, the last records tell whether it is the same topic.
    write_folder(kafka, "orders", batch(0, 0, 1), batch(2, 2), batch(3, 3))
    (report,) = await import_topics(KafkaFolders([kafka]), data, verify=True)
    assert (report.is_new, report.records) == (False, 1)
    write_folder(kafka, "orders", batch(0, 0, 1, 2, 3), batch(4, 4))
    with pytest.raises(ImportRefusedError, match="orders-0 has other records here than in Kafka"):
        await import_topics(KafkaFolders([kafka]), data)
    (data / "importing").unlink()
    write_folder(kafka, "orders", batch(0, 0, 1), batch(2, 2), batch(3, 3))
    for path in (kafka / "orders-0",):
        path.mkdir(exist_ok=True)
        (path / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with pytest.raises(ImportRefusedError, match=r"a different topic .* exists here"):
        await import_topics(KafkaFolders([kafka]), data, patterns=["orders"])
    assert not (data / "importing").exists()
    held = DataFolder(data)
    held.hold()
    with pytest.raises(StartupError, match="held by another broker"):
        await import_topics(KafkaFolders([kafka]), data)
    held.release()


async def test_a_topic_that_went_on_here_is_refused(
    kafka_folders: Recorded, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    folders = KafkaFolders([kafka_folders.folder / "clean"])
    await import_topics(folders, data, patterns=[TRIMMED])
    async with opened(data) as state:
        topic = state.registry.by_name(1, TRIMMED)
        assert topic is not None
        made = memoryview(batch(0, 0))
        partition = state.log.partitions.get(topic.partition_id(0))
        await state.log.queue.append(partition, [(read_header(made), made)])
    with pytest.raises(ImportRefusedError, match="ends at offset 11 here, and at 10 in Kafka"):
        await import_topics(folders, data, patterns=[TRIMMED])


async def test_a_missing_partition_is_named(kafka_folders: Recorded, tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    shutil.copytree(kafka_folders.folder / "clean", folder)
    shutil.rmtree(folder / f"{TRANSACTIONS}-1")
    with pytest.raises(ImportRefusedError, match="no folder of partition 1: it is at another"):
        await import_topics(KafkaFolders([folder]), tmp_path / "data")
    await import_topics(KafkaFolders([folder]), tmp_path / "data", patterns=["codec-*"])
