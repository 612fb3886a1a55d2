"""The transactions of a snapshot: in the manifest, for readers, and verified."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import read_options
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import run
from pyspark_quafka.snapshot import open_snapshot
from pyspark_quafka.store import open_store
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.verify import SnapshotVerification
from quafka_objects.folder import FolderStore
from quafka_proto.snapshot_format import (
    OpenTransaction,
    SnapshotAbortedTransaction,
    SnapshotManifest,
    SnapshotPartition,
)
from tests.support.snapshot_reader import manifests
from tests.support.snapshots import SnapshotMaker, records_of
from tests.unit.broker.snapshot_tools import ORG, delete_below, put, rewrite, snapshot, state_in
from tests.unit.broker.snapshot_tools import faults as snapshot_faults
from tests.unit.broker.transactional_writes import end, write


def published(folder: Path, *, rewritten: bool = False, start: int = 0) -> SnapshotManifest:
    """Offsets: 0 and 2 of producer 1, aborted at 4; 1 of producer 2, committed at 3; 5 and 6 of
    producer 2, open."""
    maker = SnapshotMaker(folder, rows_in_segment=4)
    for producer_id in (1, 2, 1):
        send(maker, producer_id)
    maker.end_transaction("orders", 2, commit=True)
    maker.end_transaction("orders", 1, commit=False)
    send(maker, 2)
    send(maker, 2)
    maker.append("orders", records_of([b"plain"]), producer_id=1)
    maker.starts["orders", 0] = start
    maker.publish(rewritten=rewritten)
    return manifests(folder)[-1]


def send(maker: SnapshotMaker, producer_id: int) -> None:
    maker.append("orders", records_of([b"x"]), transactional=True, producer_id=producer_id)


def faults(folder: Path, manifest: SnapshotManifest) -> list[str]:
    verification = SnapshotVerification(FolderStore(folder), manifest)
    found = [fault for report in verification.pieces() for fault in report.faults]
    return [*found, *verification.missing()]


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("start", [0, 1, 3, 4, 5, 6, 8])
def test_transactions_that_match_are_no_fault(tmp_path: Path, rewritten: bool, start: int) -> None:
    assert faults(tmp_path, published(tmp_path, rewritten=rewritten, start=start)) == []


def changed(manifest: SnapshotManifest, **change: Any) -> SnapshotManifest:
    topic = manifest.topics[0]
    partition = replace(topic.partitions[0], **change)
    return replace(manifest, topics=[replace(topic, partitions=[partition])])


ABORTED = SnapshotAbortedTransaction(1, 0, 4)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"aborted": []}, "lacks the aborted transaction of producer 1 .* 0 to 4"),
        ({"aborted": [SnapshotAbortedTransaction(1, 2, 4)]}, "lacks the aborted"),
        (
            {"aborted": [ABORTED, SnapshotAbortedTransaction(2, 1, 3)]},
            "no control batch ends the aborted transaction of producer 2 at the offsets 1 to 3",
        ),
        (
            {"open": [], "last_stable_offset": 8},
            "lacks the open transaction of producer 2 from offset 5",
        ),
        ({"open": [OpenTransaction(2, 6)], "last_stable_offset": 6}, "from offset 5"),
        ({"last_stable_offset": 8}, "the last stable offset is 8, not 5"),
    ],
)
def test_transactions_that_differ_are_faults(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    found = faults(tmp_path, changed(published(tmp_path), **change))
    assert re.search(told, "; ".join(found))


def test_a_transaction_whose_end_is_lost_to_damage_is_no_second_fault(tmp_path: Path) -> None:
    """Without its end, the aborted transaction looks open."""
    manifest = changed(published(tmp_path), lost=[[4, 5]])
    log = tmp_path / manifest.pieces[1].log
    data = bytearray(log.read_bytes())
    data[32 + 68 + 70] ^= 1  # the first entry of the second segment: producer 1's control batch
    log.write_bytes(data)
    assert all("does not match its CRC" in fault for fault in faults(tmp_path, manifest))


# --- of a broker's log ------------------------------------------------------------------------


def read(dest: Path, isolation: str) -> list[bytes]:
    given = {"path": str(dest), "subscribe": "t", "isolation": isolation}
    options = read_options(given)
    found = open_snapshot(open_store(options.path))
    scans = plan(found, ranges_to_read(found, options), options)
    return [
        value
        for scan in scans
        for batch in run(scan)
        for value in batch.column("value").to_pylist()
    ]


async def test_a_snapshot_in_the_middle_of_transactions(tmp_path: Path) -> None:
    dest = FolderDestination(tmp_path / "dest")
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        first, second = (state.log.partitions.get(topic.partition_id(n)) for n in range(2))
        await put(state, topic, b"plain")
        await write(state.log, first, 7, b"aborted")
        await write(state.log, first, 8, b"committed")
        await write(state.log, second, 8, b"committed too")
        await end(state.log, 7, first, commit=False)
        await end(state.log, 8, first, second, commit=True)
        await put(state, topic, *[b"x" * 500] * 9)  # several segments
        await write(state.log, first, 9, b"open")
        await put(state, topic, b"after")
        assert first.high_watermark == 16
        made = await snapshot(state, dest, between=lambda: end(state.log, 9, first, commit=True))
        parts = made.manifest.topics[0].partitions
        assert parts[0] == SnapshotPartition(
            0, 0, 16, 14, [], [OpenTransaction(9, 14)], [SnapshotAbortedTransaction(7, 1, 3)]
        )
        assert parts[1] == SnapshotPartition(1, 0, 2, 2)
        committed = [b"plain", b"committed", b"committed too", *[b"x" * 500] * 9]
        assert sorted(read(tmp_path / "dest", "read_committed")) == sorted(committed)
        everything = [*committed, b"aborted", b"open", b"after"]
        assert sorted(read(tmp_path / "dest", "read_uncommitted")) == sorted(everything)
        assert snapshot_faults(dest, made.manifest) == []

        await delete_below(state, topic, 5)
        await rewrite(state)
        made = await snapshot(state, dest, org=ORG)
        assert made.manifest.topics[0].partitions[0] == SnapshotPartition(0, 5, 17, 17)
        assert sorted(read(tmp_path / "dest", "read_committed")) == sorted(
            [b"committed too", *[b"x" * 500] * 9, b"open", b"after"]
        )
        assert snapshot_faults(dest, made.manifest) == []
