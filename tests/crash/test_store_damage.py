"""Each object of a log in a store is damaged: the log is refused, or nothing wrong is served.

A record that is missing afterwards is reported: its partition answers with an error, or the log
has quarantined the damage.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from quafka_broker.ops import fetch
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.wal.errors import DamagedLogError
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from quafka_proto.chain_format import manifest_path
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.record_codec import iter_records
from tests.crash.store_explorer import CACHE_BYTES, SEGMENT_BYTES, Explorer, Recipe, needed
from tests.support.store_folder import SHARD, CommittingFolder, RecordedStore
from tests.unit.broker.tools import EVERYTHING, ORG, context, running_state

pytestmark = pytest.mark.long

REFUSALS = (DamagedLogError, Malformed, OSError, StorageError)


class Place(NamedTuple):
    """A record's place."""

    topic: str
    partition: int
    offset: int


@dataclass
class Served:
    """What a broker serves, and whether it reports that something is missing."""

    values: dict[Place, bytes]
    reports: bool


async def test_damaged_objects(tmp_path: Path) -> None:
    store = RecordedStore(seed=5)
    await Explorer(Recipe(5, turns=12), tmp_path / "made")._record(store)
    whole = needed(store.objects)
    good = await served(whole, tmp_path / "good")
    assert not good.reports
    assert len(good.values) > 50
    refused = reported = 0
    for number, (path, damaged) in enumerate(damages(whole, random.Random(1))):
        try:
            found = await served(damaged, tmp_path / str(number))
        except REFUSALS:
            refused += 1
            continue
        missing = good.values.keys() - found.values.keys()
        wrong = {p: v for p, v in found.values.items() if good.values.get(p) != v}
        assert not wrong, path
        assert not missing or found.reports, (path, len(missing))
        reported += found.reports
    assert refused > 10
    assert reported > 0


def damages(whole: dict[str, bytes], rng: random.Random) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Of each object: a flipped bit in some places, a lost end, another length, nothing at all."""
    for path in sorted(whole):
        data = whole[path]
        places = {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(3))}
        for at in sorted(places):
            flipped = bytearray(data)
            flipped[at] ^= 1 << rng.randrange(8)
            yield f"{path}: byte {at}", {**whole, path: bytes(flipped)}
        yield f"{path}: cut", {**whole, path: data[: rng.randrange(len(data))]}
        yield f"{path}: empty", {**whole, path: b""}
        if path != manifest_path(SHARD):  # a takeover without one is in `test_races.py`
            yield f"{path}: gone", {each: whole[each] for each in whole if each != path}


async def served(objects: dict[str, bytes], cache: Path) -> Served:
    """Take the shard over, and read everything. Raises `REFUSALS`."""
    folder = CommittingFolder(RecordedStore(objects), cache, CACHE_BYTES)
    folder.disk.reader._deadline = 0.02
    folder.disk.reader.serve()
    try:
        async with running_state(folder, segment_bytes=SEGMENT_BYTES) as state:
            found = Served({}, bool(state.log.damages))
            for topic in list(state.registry.topics(ORG)):
                for partition in range(topic.partitions):
                    await _read(state, topic.uuid, topic.name, partition, found)
            return found
    finally:
        folder.close()


async def _read(state: BrokerState, uuid: bytes, name: str, partition: int, found: Served) -> None:
    topic = state.registry.by_id(ORG, uuid)
    assert topic is not None
    offset = state.log.partitions.get(topic.partition_id(partition)).log_start
    while True:
        op = FetchOps([FetchOp("", partition, offset, EVERYTHING, topic_id=uuid)])
        try:
            answer = (await fetch.handle(state, context(), op)).partitions[0]
        except StorageError:
            found.reports = True
            return
        if answer.error_code != ErrorCode.NONE:
            found.reports = True
            return
        records = [r for batch in answer.records for r in iter_records(batch)]
        records = [r for r in records if r.offset >= offset]
        for record in records:
            found.values[Place(name, partition, record.offset)] = record.value or b""
        if not records:
            return
        offset = records[-1].offset + 1


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
