"""What a stream reads next, without Spark: snapshots that come, go and are dropped."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from pyspark_quafka.errors import DataLossError
from pyspark_quafka.options import read_options
from pyspark_quafka.scan import Scan, run
from pyspark_quafka.stream_planner import StreamPlanner, StreamPosition
from tests.support.snapshots import SnapshotMaker, records_of


@pytest.fixture
def maker(tmp_path: Path) -> SnapshotMaker:
    return SnapshotMaker(tmp_path)


def planner(maker: SnapshotMaker, **options: str) -> StreamPlanner:
    given = {"path": str(maker.folder), "subscribe": "orders", "startingOffsets": "earliest"}
    return StreamPlanner(read_options({**given, **options}, streaming=True))


def append(maker: SnapshotMaker, many: int) -> str:
    maker.append("orders", records_of([b"x"] * many))
    return maker.publish()


def drop(maker: SnapshotMaker, snapshot_id: str) -> None:
    shutil.rmtree(maker.folder / "snapshots" / snapshot_id)


def offsets(scans: Sequence[Scan]) -> list[int]:
    return sorted(
        offset
        for scan in scans
        for batch in run(scan)
        for offset in batch.column("offset").to_pylist()
    )


def test_a_batch_whose_snapshot_was_dropped_is_read_from_a_later_one(maker: SnapshotMaker) -> None:
    append(maker, 3)
    stream = planner(maker)
    start = stream.initial()
    end = stream.latest(start)
    append(maker, 2)
    maker.starts["orders", 0] = 4
    append(maker, 1)
    drop(maker, end.snapshot)
    assert offsets(stream.plan(start, end)) == [0, 1, 2]


@pytest.mark.parametrize("lossy", [False, True])
def test_a_batch_that_no_snapshot_has_any_more_is_not_taken_for_read(
    maker: SnapshotMaker, lossy: bool
) -> None:
    append(maker, 3)
    stream = planner(maker, failOnDataLoss=str(not lossy).lower())
    start = stream.initial()
    append(maker, 2)
    end = stream.latest(start)
    drop(maker, end.snapshot)
    if lossy:
        assert offsets(stream.plan(start, end)) == [0, 1, 2]
        return
    with pytest.raises(DataLossError, match="read up to 5"):
        stream.plan(start, end)


def test_where_the_newest_snapshot_was_dropped_the_stream_waits(maker: SnapshotMaker) -> None:
    append(maker, 3)
    stream = planner(maker, failOnDataLoss="false")
    newest = append(maker, 2)
    read = stream.latest(stream.initial())
    drop(maker, newest)
    assert stream.latest(read) == read
    append(maker, 1)
    assert offsets(stream.plan(read, stream.latest(read))) == [5]


@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_stream_never_goes_back(maker: SnapshotMaker, lossy: str) -> None:
    """After a restart PySpark 4.0 and 4.1 do not say where the query is."""
    append(maker, 3)
    stream = planner(maker, failOnDataLoss=lossy)
    newest = append(maker, 2)
    read = stream.latest(stream.initial())
    drop(maker, newest)
    with pytest.raises(DataLossError, match=r"read up to 5, and snapshot .* ends at 3"):
        stream.plan(read, stream.latest(None))
    append(maker, 1)
    assert offsets(stream.plan(read, stream.latest(None))) == [5]


def test_a_batch_over_several_snapshots(maker: SnapshotMaker) -> None:
    """After a restart PySpark 4.0 and 4.1 do not say where the query is: all comes at once."""
    append(maker, 3)
    stream = planner(maker)
    start = stream.initial()
    append(maker, 3)
    maker.starts["orders", 0] = 5
    append(maker, 3)
    end = stream.latest(None)
    assert end.offsets == {"orders": {0: 9}}
    assert offsets(stream.plan(start, end)) == list(range(9))


def test_snapshots_of_other_orgs_are_passed_over(maker: SnapshotMaker) -> None:
    append(maker, 3)
    stream = planner(maker)
    start = stream.initial()
    end = stream.latest(start)
    maker.publish(org=7)
    assert stream.latest(end) == end
    append(maker, 2)
    drop(maker, end.snapshot)
    assert offsets(stream.plan(start, end)) == [0, 1, 2]
    maker.publish(org=7)
    assert stream.latest(end).offsets == {"orders": {0: 5}}


def test_a_start_that_is_not_there_yet_is_waited_for(maker: SnapshotMaker) -> None:
    append(maker, 3)
    late = '{"orders": {"0": 5}}'
    with pytest.raises(DataLossError, match="offsets 0 to 3"):
        planner(maker, startingOffsets=late).initial()
    stream = planner(maker, startingOffsets=late, failOnDataLoss="false")
    start = stream.initial()
    assert stream.latest(start) == start
    append(maker, 4)
    assert offsets(stream.plan(start, stream.latest(start))) == [5, 6]


@pytest.mark.parametrize("lossy", [False, True])
def test_a_topic_that_is_not_subscribed_to_any_more_is_told(
    maker: SnapshotMaker, lossy: bool
) -> None:
    """Unnoticed it would be read from its beginning when it is subscribed to again."""
    maker.append("others", records_of([b"x"]))
    append(maker, 3)
    both = planner(maker, subscribe="orders,others")
    start = both.latest(both.initial())
    one = planner(maker, failOnDataLoss=str(not lossy).lower())
    end = one.latest(start)
    if lossy:
        assert offsets(one.plan(start, end)) == []
        return
    with pytest.raises(DataLossError, match="others-0 was read up to 1 and is not subscribed to"):
        one.plan(start, end)


def test_a_hole_between_snapshots_is_told(maker: SnapshotMaker) -> None:
    append(maker, 3)
    stream = planner(maker)
    start = stream.initial()
    maker.starts["orders", 0] = 5
    append(maker, 6)
    with pytest.raises(DataLossError, match="read up to 3"):
        stream.plan(start, stream.latest(None))


def test_a_position_is_the_same_after_a_checkpoint() -> None:
    position = StreamPosition("00000001-20261121T000001Z", {"orders": {0: 3, 11: 4}}, {"orders": 2})
    assert StreamPosition.from_json(position.to_json()) == position
