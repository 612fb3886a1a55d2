"""`quafka wal` on a compacted log: gaps and batches with fewer records are no damage."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from quafka.cli import main
from quafka_broker.wal.disk import RealDisk
from tests.unit.broker.compacting import START_MS, compacting

DAY_MS = 86_400_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log with one compacted partition: 9 offsets, and a third of them have records."""

    async def make() -> None:
        (tmp_path / "wal").mkdir()
        async with compacting(RealDisk(tmp_path / "wal")) as made:
            topic = await made.topic()
            for _ in range(2):
                await made.put(topic, (b"a", b"old"), (b"b", b"old"))
            await made.put(topic, (b"a", b"old"), (b"b", b"new"), (b"c", b"new"))
            await made.put(topic, (b"a", None), (b"d", b"new"))
            await made.compact(topic)

    asyncio.run(make())
    return tmp_path


def test_dump_shows_what_is_left(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wal", "dump", str(data), "--format", "json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    batches = [each for each in found if "journal" not in each]
    assert [(each["offset"], each["records"], each.get("left")) for each in batches] == [
        (4, 3, 2), (7, 2, None)
    ]  # fmt: skip
    assert [each.get("delete_horizon") for each in batches] == [None, START_MS + DAY_MS]


def test_verify_and_repair_find_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wal", "verify", str(data)]) == 0
    before = {path.name: path.read_bytes() for path in (data / "wal").glob("*.log")}
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    assert before == {path.name: path.read_bytes() for path in (data / "wal").glob("*.log")}
    assert "nothing is damaged" in capsys.readouterr().out
