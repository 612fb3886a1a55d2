"""From options to records, without Spark: what is planned, read and refused."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pyspark_quafka import planner
from pyspark_quafka.damage import CorruptBatchError
from pyspark_quafka.errors import (
    DataLossError,
    QuafkaError,
    QuafkaOptionError,
    SnapshotNotFoundError,
)
from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import read_options
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import Scan, run
from pyspark_quafka.snapshot import open_snapshot
from pyspark_quafka.store import open_store
from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record
from tests.support.snapshots import SnapshotMaker, records_of

Found = list[tuple[str, int, int, bytes | None]]


def scans(folder: Path, **options: str) -> list[Scan]:
    given = {"path": str(folder), **options}
    checked = read_options(
        given if set(given) & {"assign", "subscribePattern"} else {"subscribe": "orders", **given}
    )
    snapshot = open_snapshot(open_store(checked.path), checked.as_of, checked.org)
    return plan(snapshot, ranges_to_read(snapshot, checked), checked)


def rows(folder: Path, **options: str) -> list[Mapping[str, Any]]:
    return [
        row for scan in scans(folder, **options) for batch in run(scan) for row in batch.to_pylist()
    ]


def offsets(folder: Path, **options: str) -> list[int]:
    """Of partition 0, sorted."""
    return sorted(row["offset"] for row in rows(folder, **options) if row["partition"] == 0)


@pytest.fixture
def maker(tmp_path: Path) -> SnapshotMaker:
    return SnapshotMaker(tmp_path / "dest", rows_in_segment=20)


def fill(
    maker: SnapshotMaker, batches: int = 60, per_batch: int = 10, topic: str = "orders"
) -> None:
    """Record `n` of partition 0 has the timestamp 1000 + n; partition 1 has one record a batch."""
    for number in range(batches):
        values = [b"%d" % (number * per_batch + at) for at in range(per_batch)]
        first = 1_000 + number * per_batch
        maker.append(topic, records_of(values, first), codec=Codec(number % 5))
        maker.append(topic, records_of([b"one"], first), partition=1)
        maker.append("others", records_of([b"other"]))


def test_everything_comes_once(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.publish()
    found = rows(maker.folder)
    assert [row["value"] for row in found if row["partition"] == 0] == [
        b"%d" % number for number in range(600)
    ]
    assert sorted(row["offset"] for row in found if row["partition"] == 1) == list(range(60))
    assert {row["topic"] for row in found} == {"orders"}


def test_a_rewritten_segment_has_its_entries_in_any_order(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.publish(rewritten=True)
    assert offsets(maker.folder) == list(range(600))


def test_several_topics_by_name_pattern_and_partition(maker: SnapshotMaker) -> None:
    fill(maker, 3)
    maker.publish()
    named = rows(maker.folder, subscribe="orders, others")
    matched = rows(maker.folder, subscribePattern="o.*")
    assert rows(maker.folder, subscribePattern="^other.") == rows(maker.folder, subscribe="others")
    assert len(rows(maker.folder, subscribePattern="er")) == 3 * 12, "as by Spark's own source"
    assert rows(maker.folder, subscribePattern="^er") == rows(maker.folder, assign="{}") == []
    assert len(named) == len(matched) == 3 * 12
    only = rows(maker.folder, assign='{"orders": [1], "others": [0]}')
    assert {(row["topic"], row["partition"]) for row in only} == {("orders", 1), ("others", 0)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"orders": {"0": 17, "1": -2}}'}, range(17, 600)),
        ({"endingOffsets": '{"orders": {"0": 23, "1": -1}}'}, range(23)),
        (
            {"startingOffsets": '{"orders": {"0": 595, "1": -2}}', "endingOffsets": "latest"},
            range(595, 600),
        ),
        ({"startingTimestamp": "1333"}, range(333, 600)),
        ({"endingTimestamp": "1101"}, range(101)),
        ({"startingTimestamp": "1300", "endingTimestamp": "1305"}, range(300, 305)),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 1599, "1": 0}}'}, range(599, 600)),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 99999, "1": 0}}'}, range(600)),
        ({"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}, range(0)),
    ],
)
def test_ranges_of_offsets_and_times(
    maker: SnapshotMaker, options: dict[str, str], expected: range
) -> None:
    fill(maker)
    maker.publish()
    assert offsets(maker.folder, **options) == list(expected)


def test_times_that_are_out_of_order(maker: SnapshotMaker) -> None:
    """The first offset whose timestamp is not below: as Kafka's ListOffsets has it."""
    for timestamp in (50, 10, 90, 20, 95):
        maker.append("orders", records_of([b"x"], timestamp))
    maker.publish()
    assert offsets(maker.folder, startingTimestamp="60") == [2, 3, 4]
    with pytest.raises(QuafkaOptionError, match="startingOffsetsByTimestampStrategy=latest"):
        offsets(maker.folder, startingTimestamp="96")


def test_a_narrow_read_is_one_small_task(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.publish()
    (scan,) = scans(maker.folder, assign='{"orders": [0]}',
                    startingOffsets='{"orders": {"0": 301}}',
                    endingOffsets='{"orders": {"0": 309}}')  # fmt: skip
    (part,) = scan.slices
    assert part.end - part.first == 1
    assert len(scan.ranges) == 1


def test_tasks_are_of_much_the_same_size(
    maker: SnapshotMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"x" * 2_000] * 5
    for _ in range(200):
        maker.append("orders", records_of(values))
    maker.publish()
    monkeypatch.setattr(planner, "TASK_BYTES", 200_000)
    counts = [sum(batch.num_rows for batch in run(scan)) for scan in scans(maker.folder)]
    assert sum(counts) == 1_000
    assert max(counts) <= 1.5 * min(counts)
    monkeypatch.undo()
    assert len(scans(maker.folder)) == 1
    counts = [sum(b.num_rows for b in run(s)) for s in scans(maker.folder, minPartitions="7")]
    assert len(counts) >= 7
    assert max(counts) <= 1.5 * min(counts)


def test_no_task_has_more_records_than_asked_for(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.publish()
    found = scans(maker.folder, maxRecordsPerPartition="64")
    counts = [sum(batch.num_rows for batch in run(scan)) for scan in found]
    assert max(counts) <= 64
    assert sum(counts) == 660


def test_a_least_number_of_tasks_holds_beside_a_most_of_records(maker: SnapshotMaker) -> None:
    maker.append("orders", records_of([b"v"] * 100))
    maker.publish()
    assert len(scans(maker.folder, maxRecordsPerPartition="50")) == 2
    assert len(scans(maker.folder, maxRecordsPerPartition="50", minPartitions="10")) == 10


def test_a_partition_that_is_named_twice_is_read_once(maker: SnapshotMaker) -> None:
    fill(maker, batches=2)
    maker.publish()
    twice = '{"orders": [0, 0]}'
    assert offsets(maker.folder, assign=twice, maxRecordsPerPartition="7") == list(range(20))


def test_an_earlier_topic_of_the_same_name_is_not_read(maker: SnapshotMaker) -> None:
    maker.append("orders", records_of([b"old"] * 5))
    maker.publish()
    maker.recreate("orders")
    maker.append("orders", records_of([b"new"]))
    maker.publish()
    assert [row["value"] for row in rows(maker.folder)] == [b"new"]
    assert len(rows(maker.folder, asOf="1500000")) == 5


def test_the_snapshot_of_a_time_or_id(maker: SnapshotMaker) -> None:
    ids = []
    for _ in range(3):
        maker.append("orders", records_of([b"x"]))
        ids.append(maker.publish())
    assert offsets(maker.folder) == [0, 1, 2]
    assert offsets(maker.folder, asOf=ids[0]) == [0]
    assert offsets(maker.folder, asOf="2999999") == [0, 1]
    assert offsets(maker.folder, asOf="1970-01-01T00:50:00Z") == [0, 1, 2]
    assert offsets(maker.folder, asOf=" LATEST ") == [0, 1, 2]
    # As commands print the time of a cut: it was some time within that second.
    maker.cut_ms = 3_001_700
    later = maker.publish()
    for text, expected in (("00:50:01Z", later), ("00:50:01.699Z", ids[2]), ("00:50:00Z", ids[2])):
        found = open_snapshot(open_store(str(maker.folder)), f"1970-01-01 {text}")
        assert found.id == expected
    with pytest.raises(SnapshotNotFoundError, match=ids[0]):
        offsets(maker.folder, asOf="1970-01-01")
    with pytest.raises(SnapshotNotFoundError, match=r"no snapshot in /.*/nothing; make one"):
        offsets(maker.folder / "nothing")
    (maker.folder / "file").touch()
    with pytest.raises(QuafkaError, match="/file: it is not a folder"):
        offsets(maker.folder / "file")
    (maker.folder / "snapshots" / "00000009-20261121T000009Z").mkdir()
    assert offsets(maker.folder) == [0, 1, 2]  # without a manifest it is none


def test_deleted_records_are_not_read(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.starts["orders", 0] = 105
    maker.publish()
    assert offsets(maker.folder) == list(range(105, 600))
    assert offsets(maker.folder, startingTimestamp="1003") == list(range(105, 600))
    asked = {"startingOffsets": '{"orders": {"0": 20, "1": -2}}'}
    with pytest.raises(DataLossError, match="offsets 105 to 600"):
        offsets(maker.folder, **asked)
    assert offsets(maker.folder, **asked, failOnDataLoss="false") == list(range(105, 600))


def test_an_end_that_is_gone(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.starts["orders", 0] = 105
    maker.publish()
    asked = {"endingOffsets": '{"orders": {"0": 20, "1": -1}}'}
    with pytest.raises(DataLossError, match="offsets 105 to 600"):
        offsets(maker.folder, **asked)
    assert offsets(maker.folder, **asked, failOnDataLoss="false") == []


@pytest.mark.parametrize("lossy", ["true", "false"])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"startingOffsets": '{"orders": {"0": 7}}'}, {"endingOffsets": '{"orders": {"0": 3}}'}),
        ({"startingTimestamp": "1005"}, {"endingTimestamp": "1001"}),
    ],
)
def test_an_end_before_the_start_is_told(
    maker: SnapshotMaker, start: dict[str, str], end: dict[str, str], lossy: str
) -> None:
    maker.append("orders", records_of([b"v"] * 10))
    maker.publish()
    with pytest.raises(QuafkaOptionError, match="the start is after the end"):
        offsets(maker.folder, **start, **end, failOnDataLoss=lossy)


def test_offsets_that_are_not_there_yet(maker: SnapshotMaker) -> None:
    maker.append("orders", records_of([b"v"] * 10))
    maker.publish()
    for asked in (
        {"startingOffsets": '{"orders": {"0": 99}}'},
        {"endingOffsets": '{"orders": {"0": 99}}'},
    ):
        with pytest.raises(DataLossError, match="offsets 0 to 10"):
            offsets(maker.folder, **asked)
    assert offsets(maker.folder, startingOffsets='{"orders": {"0": 10}}') == []
    late = '{"orders": {"0": 99}}'
    assert offsets(maker.folder, startingOffsets=late, failOnDataLoss="false") == []


def test_damage_is_told_with_its_place_or_left_out(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.publish()
    log = maker.log_of(1)
    data = bytearray(log.read_bytes())
    at = len(data) // 2
    data[at : at + 1] = bytes([data[at] ^ 1])
    log.write_bytes(data)
    with pytest.raises(CorruptBatchError, match=r"topic \w+, partition \d, offset \d+: "):
        rows(maker.folder, subscribe="orders,others")
    with pytest.warns(RuntimeWarning, match="left out: topic"):
        left = rows(maker.folder, subscribe="orders,others", mode="permissive")
    assert 720 - 10 <= len(left) < 720


def test_a_time_is_not_looked_for_behind_damage(maker: SnapshotMaker) -> None:
    for first in (1_000, 1_010):
        maker.append("orders", records_of([b"v"] * 10, first))
    maker.publish()
    log = maker.log_of(0)
    data = bytearray(log.read_bytes())
    data[32 + 68 + 61 + 20] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptBatchError, match="offset 0"):
        offsets(maker.folder, startingTimestamp="1005")
    left = offsets(maker.folder, startingTimestamp="1005", mode="PERMISSIVE")
    assert left == list(range(10, 20))
    assert offsets(maker.folder, startingTimestamp="1012") == list(range(12, 20))


def test_what_is_lost_is_not_read_over(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.lost["orders", 0] = [[40, 50]]
    maker.publish()
    with pytest.raises(CorruptBatchError, match="partition 0, offset 40: lost up to 50"):
        offsets(maker.folder)
    assert 50 in offsets(maker.folder, startingOffsets='{"orders": {"0": 50, "1": -2}}')
    assert 39 in offsets(maker.folder, mode="PERMISSIVE")


def test_a_damaged_index_row_is_told(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.publish()
    index = maker.log_of(0).with_suffix(".oidx")
    data = bytearray(index.read_bytes())
    data[32 + 96 * 3 + 30] ^= 1
    index.write_bytes(data)
    with pytest.raises(CorruptBatchError, match=r"row 3 of segments/.*\.oidx"):
        rows(maker.folder)


def test_a_snapshot_that_is_dropped_while_it_is_read(maker: SnapshotMaker) -> None:
    fill(maker)
    maker.publish()
    planned = scans(maker.folder)
    maker.log_of(0).unlink()
    with pytest.raises(QuafkaError, match=r"snapshot dropped\? there is no /.*\.log"):
        [list(run(scan)) for scan in planned]
    maker.log_of(0).with_suffix(".zones").unlink()
    with pytest.raises(QuafkaError, match=r"there is no segments/.*\.zones; was it dropped"):
        scans(maker.folder)


def test_a_full_disk_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        open_store(str(tmp_path)).put("topic=t/0.parquet", b"x" * 1_000)
    assert list((tmp_path / "topic=t").iterdir()) == []


def test_headers_and_columns(maker: SnapshotMaker) -> None:
    maker.append(
        "orders",
        [Record(0, 5, b"k", None, [("a", b"1"), ("a", None)]), Record(0, 6, None, b"v", [])],
    )
    maker.publish()
    first, second = rows(maker.folder, columns="HEADERS, key", includeHeaders="true")
    assert first == {
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        "key": b"k",
    }
    assert second == {"headers": None, "key": None}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "order"}, "there is no topic order .* there are: orders, others"),
        ({"assign": '{"orders": [5]}'}, "partition 5 of orders, which has 0 to 1"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "nothing for orders-1"),
        (
            {"endingOffsets": '{"orders": {"0": 5, "1": 2}, "oders": {"7": 1}}'},
            "endingOffsets names oders-7, which is not read",
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 5, "1": 2, "2": 2}}'},
            "startingOffsetsByTimestamp names orders-2, which is not read",
        ),
        ({"org": "2"}, "there is no topic"),
    ],
)
def test_what_is_not_there_is_told(
    maker: SnapshotMaker, options: dict[str, str], told: str
) -> None:
    fill(maker, 1)
    maker.publish()
    with pytest.raises(QuafkaOptionError, match=told):
        rows(maker.folder, **options)


def test_a_snapshot_of_another_org_is_refused(maker: SnapshotMaker) -> None:
    fill(maker, 1)
    maker.publish(org=7)
    with pytest.raises(QuafkaOptionError, match="org 7 only"):
        rows(maker.folder)


def test_the_latest_is_the_latest_of_the_org(maker: SnapshotMaker) -> None:
    fill(maker, 1)
    mine = maker.publish(org=1)
    others = maker.publish(org=7)
    assert offsets(maker.folder) == list(range(10))
    assert offsets(maker.folder, asOf="9000000") == list(range(10))
    assert offsets(maker.folder, asOf=mine) == list(range(10))
    with pytest.raises(QuafkaOptionError, match="org 7 only"):
        rows(maker.folder, asOf=others)


def test_an_empty_topic_needs_no_task(maker: SnapshotMaker) -> None:
    assert maker.ends["orders", 0] == 0
    maker.publish()
    assert scans(maker.folder) == []


def test_tasks_know_only_the_partitions_that_they_read(maker: SnapshotMaker) -> None:
    for partition in range(100):
        maker.append("orders", records_of([b"x"]), partition=partition)
    maker.publish()
    found = scans(maker.folder, minPartitions="5")
    assert [len(scan.ranges) for scan in found] == [20] * 5
    assert sum(batch.num_rows for scan in found for batch in run(scan)) == 100
