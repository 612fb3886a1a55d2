"""Folders that a real Apache Kafka 4.3 wrote: everything that its consumers read is read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quafka_broker.kafka_logs.errors import KafkaLogError, OffsetOutOfRangeError
from quafka_broker.kafka_logs.log_folders import KafkaFolders, folders_of
from quafka_broker.kafka_logs.partition_log import PartitionLog
from tests.support.kafka_folder_checks import check_folders, check_partition, records
from tests.support.kafka_folders import COMPACTED, DELETED, NOW, ROLLED, TRANSACTIONS, TRIMMED
from tests.unit.broker.kafka_logs.conftest import Recorded


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_everything_that_kafka_serves(kafka_folders: Recorded, name: str) -> None:
    folders = KafkaFolders([kafka_folders.folder / name])
    assert (folders.node_id, folders.kraft) == (1, True)
    assert folders.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    check_folders(folders, kafka_folders.expected)
    assert folders.topics["codec-gzip"].configs == {"retention.bytes": "12345678"}
    assert folders.topics[COMPACTED].configs["cleanup.policy"] == "compact"
    assert DELETED not in folders.topics


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_hints_may_be_missing_or_torn(kafka_folders: Recorded, tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(kafka_folders.folder / "killed", folder)
    for number, path in enumerate(sorted(folder.rglob(f"0*{suffix}"))):
        if number % 3 == 0:
            path.unlink()
        elif number % 3 == 1:
            path.write_bytes(path.read_bytes() + b"\xff" * 31)
        else:
            path.write_bytes(path.read_bytes()[:-3])
    check_folders(KafkaFolders([folder]), kafka_folders.expected)


def test_times(kafka_folders: Recorded) -> None:
    folders = KafkaFolders([kafka_folders.folder / "clean"])
    log = folders.open("codec-zstd", 0)
    for number in (0, 1, 39, 40, 77, 119):
        found = log.offset_at(NOW + 10 * number - 3)
        assert found is not None
        assert found[:2] == (NOW + 10 * number, number)
    assert log.offset_at(NOW + 10 * 119 + 1) is None
    assert log.newest() == (NOW + 10 * 119, 119, 0)
    rolled = folders.open(ROLLED, 0)
    assert len(rolled.view.segments) > 3
    for turn in range(6):
        found = rolled.offset_at(NOW + 1000 * turn)
        assert found is not None
        assert found.offset == 15 * turn
        assert rolled.offset_at(NOW + 1000 * turn, end=15 * turn) is None
    assert folders.open("empty", 0).newest() is None


def test_bounds(kafka_folders: Recorded) -> None:
    folders = KafkaFolders([kafka_folders.folder / "clean"])
    log = folders.open(TRIMMED, 0)
    assert log.log_start == 7
    assert log.read(log.log_end, 100) == []
    for offset in (6, 11):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100)
    assert not folders.refresh()
    assert not log.refresh(folders.log_start(TRIMMED, 0))


def test_an_end_bounds_a_read(kafka_folders: Recorded) -> None:
    log = KafkaFolders([kafka_folders.folder / "clean"]).open(TRANSACTIONS, 0)
    found = log.read(0, 1 << 20, end=log.last_stable_offset)
    assert found[-1].next_offset <= log.last_stable_offset < log.log_end


def test_a_torn_tail_is_not_served(kafka_folders: Recorded, tmp_path: Path) -> None:
    source = kafka_folders.folder / "killed"
    whole = KafkaFolders([source]).open("codec-lz4", 0)
    segment = whole.view.segments[-1]
    last = whole.read(whole.log_end - 1, 1)[0]
    for cut in (5, 20, len(last.data) - 70, len(last.data) - 1):
        folder = tmp_path / str(cut)
        shutil.copytree(source, folder)
        path = folder / "codec-lz4-0" / segment.path.name
        data = path.read_bytes()[: segment.size - cut]
        path.write_bytes(data)
        log = KafkaFolders([folder]).open("codec-lz4", 0)
        assert log.log_end == int.from_bytes(last.data[:8], "big")
        path.write_bytes(data + bytes(cut))  # zeros, as after a power cut
        assert KafkaFolders([folder]).open("codec-lz4", 0).log_end == log.log_end


def test_damage_inside_names_the_place(kafka_folders: Recorded, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(kafka_folders.folder / "clean", folder)
    log = KafkaFolders([folder]).open("codec-none", 0)
    second = log.read(40, 1)[0]
    assert second.path is not None
    data = bytearray(second.path.read_bytes())
    data[second.position + 100] ^= 1
    second.path.write_bytes(data)
    assert [b.next_offset for b in log.read(0, 1 << 20)] == [40]
    with pytest.raises(KafkaLogError, match=f"{second.path.name}, position {second.position}"):
        log.read(40, 1 << 20)
    assert log.read(80, 1 << 20)[-1].next_offset == log.log_end


def test_a_growing_folder(kafka_folders: Recorded, tmp_path: Path) -> None:
    """Segment after segment, cut at any byte, as a reader may find a running Kafka's."""
    whole = KafkaFolders([kafka_folders.folder / "killed"])
    for name in (TRANSACTIONS, ROLLED):
        source = whole.topics[name].partitions[0].path
        expected = kafka_folders.expected["topics"][name]["partitions"][0]
        folder = tmp_path / source.name
        folder.mkdir()
        log = PartitionLog(folder)
        for path in sorted(source.glob("*.log")):
            data = path.read_bytes()
            for size in (0, 10, 100, len(data) // 2, len(data) - 1, len(data)):
                (folder / path.name).write_bytes(data[:size])
                log.refresh()
        check_partition(log, expected)
        again = PartitionLog(folder)
        assert (again.log_end, again.last_stable_offset) == (log.log_end, log.last_stable_offset)


def test_retention_and_compaction_of_a_running_kafka(
    kafka_folders: Recorded, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(kafka_folders.folder / "killed", folder)
    log = KafkaFolders([folder]).open(ROLLED, 0)
    before = records(log, 1 << 20)
    first, second, *_ = log.view.segments
    first.path.unlink()
    assert log.refresh()
    assert log.log_start == second.base_offset
    assert records(log, 1 << 20) == [r for r in before if r[0].offset >= second.base_offset]
    # The cleaner has replaced two segments by one, and was killed before it renamed the new one.
    second, third, *_ = log.view.segments
    joined = second.path.read_bytes() + third.path.read_bytes()
    second.path.with_name(second.path.name + ".swap").write_bytes(joined)
    third.path.unlink()
    kept = records(KafkaFolders([folder]).open(ROLLED, 0), 1 << 20)
    assert kept == [r for r in before if r[0].offset >= second.base_offset]


def test_a_server_properties(kafka_folders: Recorded, tmp_path: Path) -> None:
    clean = kafka_folders.folder / "clean"
    settings = tmp_path / "server.properties"
    settings.write_text(
        f"# comment\nnode.id=1\nlog.dirs = {clean} , \nother\\ key:v\\u0041\\\n  B\n"
    )
    assert folders_of(settings) == [clean]
    assert KafkaFolders([settings]).topics


def test_without_a_metadata_log_the_folders_tell(kafka_folders: Recorded, tmp_path: Path) -> None:
    """As of a broker with ZooKeeper."""
    folder = tmp_path / "logs"
    shutil.copytree(kafka_folders.folder / "clean", folder)
    shutil.rmtree(folder / "__cluster_metadata-0")
    (folder / "meta.properties").write_text("#old\nversion=0\nbroker.id=7\n")
    folders = KafkaFolders([folder])
    assert (folders.node_id, folders.kraft, folders.cluster_id) == (7, False, "")
    check_folders(folders, kafka_folders.expected)
    for path in folder.rglob("partition.metadata"):
        path.unlink()
    assert KafkaFolders([folder]).topics[ROLLED].topic_id == bytes(16)


def test_folders_that_are_none(kafka_folders: Recorded, tmp_path: Path) -> None:
    with pytest.raises(KafkaLogError, match="it has no meta"):
        KafkaFolders([tmp_path])
    (tmp_path / "meta.properties").write_text("version=2\n")
    with pytest.raises(KafkaLogError, match="version 2 is not supported"):
        KafkaFolders([tmp_path])
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=2\n")
    with pytest.raises(KafkaLogError, match="another broker"):
        KafkaFolders([kafka_folders.folder / "clean", tmp_path])
    with pytest.raises(KafkaLogError, match="No such file"):
        KafkaFolders([tmp_path / "missing"])
