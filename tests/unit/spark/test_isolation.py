"""With read_committed a reader gets what a read_committed consumer got: of snapshots, in batches,
streams and Parquet."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_quafka import planner
from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import read_options
from pyspark_quafka.parquet import Exported, export_parquet
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import Scan, run
from pyspark_quafka.snapshot import open_snapshot
from pyspark_quafka.store import open_store
from pyspark_quafka.stream_planner import StreamPlanner, StreamPosition
from quafka_proto.compression import Codec
from quafka_proto.record_codec import iter_records
from quafka_proto.records import CONTROL, TRANSACTIONAL, read_header
from tests.support.snapshots import SnapshotMaker, records_of
from tests.support.suites import examples

COMMITTED = {"isolation": "read_committed"}


@pytest.fixture
def maker(tmp_path: Path) -> SnapshotMaker:
    return SnapshotMaker(tmp_path / "dest", rows_in_segment=5)


def scans(folder: Path, **given: str) -> list[Scan]:
    options = read_options({"path": str(folder), "subscribe": "orders", **given})
    snapshot = open_snapshot(open_store(options.path), options.as_of)
    return plan(snapshot, ranges_to_read(snapshot, options), options)


def values(found: Sequence[Scan]) -> list[Any]:
    found = pickle.loads(pickle.dumps(found))
    return [v for scan in found for batch in run(scan) for v in batch.column("value").to_pylist()]


def send(maker: SnapshotMaker, producer_id: int, *values: bytes, codec: int = 0) -> None:
    maker.append(
        "orders", records_of(values), transactional=True, producer_id=producer_id, codec=codec
    )


def test_aborted_and_open_transactions_are_not_committed(maker: SnapshotMaker) -> None:
    send(maker, 1, b"committed")
    send(maker, 2, b"aborted")
    maker.append("orders", records_of([b"plain"]))
    maker.append("orders", records_of([b"idempotent"]), producer_id=2)
    maker.end_transaction("orders", 2, commit=False)
    maker.end_transaction("orders", 1, commit=True)
    send(maker, 2, b"second")
    maker.end_transaction("orders", 2, commit=True)
    send(maker, 3, b"open")
    maker.append("orders", records_of([b"after"]))
    maker.publish()
    committed = [b"committed", b"plain", b"idempotent", b"second"]
    assert values(scans(maker.folder, isolation="read_committed")) == committed
    kafka_s = {"kafka.isolation.level": "read_committed"}
    assert values(scans(maker.folder, **kafka_s)) == committed
    everything = [b"committed", b"aborted", *committed[1:], b"open", b"after"]
    assert values(scans(maker.folder)) == everything
    for columns, level, rows in (("", COMMITTED, 4), ("offset", COMMITTED, 4), ("", {}, 7)):
        found = scans(maker.folder, columns=columns, **level)
        assert sum(batch.num_rows for scan in found for batch in run(scan)) == rows


def test_an_aborted_transaction_that_begins_below_the_log_start(maker: SnapshotMaker) -> None:
    for number in range(3):
        send(maker, 1, b"%d" % number)
    maker.end_transaction("orders", 1, commit=False)
    send(maker, 1, b"kept")
    maker.end_transaction("orders", 1, commit=True)
    maker.starts["orders", 0] = 2
    maker.publish()
    assert values(scans(maker.folder)) == [b"2", b"kept"]
    assert values(scans(maker.folder, **COMMITTED)) == [b"kept"]


def test_tasks_know_only_the_transactions_that_they_need(
    maker: SnapshotMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        send(maker, number % 3, b"x" * 1_000)
        maker.end_transaction("orders", number % 3, commit=number % 2 == 0)
    maker.publish()
    monkeypatch.setattr(planner, "TASK_BYTES", 10_000)
    found = scans(maker.folder, **COMMITTED)
    assert len(found) > 3
    assert len(values(found)) == 20
    many = [len(scan.wanted.aborted.lasts) if scan.wanted.aborted else 0 for scan in found]
    assert max(many) <= 10
    narrow = scans(
        maker.folder, **COMMITTED,
        startingOffsets='{"orders": {"0": 2}}', endingOffsets='{"orders": {"0": 3}}',
    )  # fmt: skip
    assert values(narrow) == []
    [scan] = narrow
    assert scan.wanted.aborted is not None
    assert scans(maker.folder)[0].wanted.aborted is None


def test_parquet_has_what_is_committed(maker: SnapshotMaker, tmp_path: Path) -> None:
    """Who reads a table cannot know any more which records were aborted."""
    send(maker, 1, b"committed")
    send(maker, 2, b"aborted")
    maker.end_transaction("orders", 1, commit=True)
    maker.end_transaction("orders", 2, commit=False)
    send(maker, 3, b"open")
    maker.publish()

    def exported(dest: Path, made: Exported) -> list[Any]:
        tables = [pq.read_table(str(dest / name)) for name in made.files]
        found = [value for table in tables for value in table.column("value").to_pylist()]
        assert made.records == len(found)
        return found

    one, all_ = tmp_path / "one", tmp_path / "all"
    assert exported(one, export_parquet(maker.folder, one)) == [b"committed"]
    made = export_parquet(maker.folder, all_, isolation="read_uncommitted")
    assert exported(all_, made) == [b"committed", b"aborted", b"open"]


def test_a_stream_stops_at_an_open_transaction_and_goes_on(maker: SnapshotMaker) -> None:
    options = {"path": str(maker.folder), "subscribe": "orders", "startingOffsets": "earliest"}
    stream = StreamPlanner(read_options({**options, **COMMITTED}, streaming=True))

    def batch(start: StreamPosition) -> tuple[list[Any], StreamPosition]:
        end = stream.latest(start)
        return values(stream.plan(start, end)), end

    maker.append("orders", records_of([b"before"]))
    send(maker, 1, b"one")
    send(maker, 2, b"aborted")
    maker.publish()
    found, at = batch(stream.initial())
    assert found == [b"before"]
    send(maker, 1, b"two")
    maker.end_transaction("orders", 2, commit=False)
    maker.publish()
    assert batch(at) == ([], at)
    maker.end_transaction("orders", 1, commit=True)
    send(maker, 2, b"later")
    maker.publish()
    found, at = batch(at)
    assert found == [b"one", b"two"]
    maker.end_transaction("orders", 2, commit=True)
    maker.publish()
    assert batch(at)[0] == [b"later"]


# --- the reference: the algorithm of a consumer, record by record -----------------------------


def consumed(maker: SnapshotMaker, batches: Sequence[bytearray]) -> list[tuple[int, bytes | None]]:
    """What a read_committed consumer gets, by its rules, up to the last stable offset (KIP-98)."""
    stable = min(maker.open["orders", 0].values(), default=maker.ends["orders", 0])
    waiting = sorted(maker.aborted["orders", 0], key=lambda each: each.first_offset)
    aborting: set[int] = set()
    found: list[tuple[int, bytes | None]] = []
    for batch in batches:
        header = read_header(batch)
        if header.base_offset >= stable:
            break
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborting.add(waiting.pop(0).producer_id)
        if header.attributes & CONTROL:
            aborting.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborting):
            found += [(record.offset, record.value) for record in iter_records(batch)]
    return found


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "commit", "abort", "plain", "publish"]),
        st.integers(0, 3),
        st.integers(1, 3),
    ),
    max_size=40,
)


@examples(60)
@given(STEPS, st.integers(1, 9), st.booleans())
def test_a_reader_gets_what_a_consumer_got(
    steps: list[tuple[str, int, int]], rows_in_segment: int, rewritten: bool
) -> None:
    with TemporaryDirectory() as folder:
        maker = SnapshotMaker(Path(folder), rows_in_segment)
        assert maker.ends["orders", 0] == 0
        batches = maker.batches
        options = {"path": folder, "subscribe": "orders", "startingOffsets": "earliest"}
        stream = StreamPlanner(read_options({**options, **COMMITTED}, streaming=True))
        maker.publish()
        at = stream.initial()
        streamed: list[tuple[int, bytes | None]] = []
        for number, (what, producer, many) in enumerate([*steps, ("publish", 0, 0)]):
            sent = [b"%d-%d" % (number, each) for each in range(many)]
            if what == "send":
                send(maker, producer, *sent, codec=Codec(number % 5))
            elif what == "plain":
                maker.append("orders", records_of(sent), producer_id=producer)
            elif what == "publish":
                maker.publish(rewritten=rewritten)
                end = stream.latest(at)
                streamed += sorted(pairs(stream.plan(at, end)))
                at = end
                expected = consumed(maker, batches)
                assert streamed == expected
                assert sorted(pairs(scans(maker.folder, **COMMITTED))) == expected
                control = {
                    h.base_offset for h in map(read_header, batches) if h.attributes & CONTROL
                }
                everything = sorted(offset for offset, _ in pairs(scans(maker.folder)))
                assert everything == sorted(set(range(maker.ends["orders", 0])) - control)
            elif producer in maker.open["orders", 0]:
                maker.end_transaction("orders", producer, commit=what == "commit")


def pairs(found: Sequence[Scan]) -> list[tuple[int, bytes | None]]:
    return [
        (row["offset"], row["value"])
        for scan in found
        for batch in run(scan)
        for row in batch.to_pylist()
    ]
