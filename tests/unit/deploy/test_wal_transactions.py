"""`quafka wal` on a log with transactions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from quafka.cli import main
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.segment import index_name
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    ROW_TRANSACTIONAL,
    decode_row,
    encode_row,
)
from tests.unit.broker.tools import running_state
from tests.unit.broker.transactional import Sender, create


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a committed, an aborted and an open transaction."""
    (tmp_path / "wal").mkdir()

    async def fill() -> None:
        config = BrokerConfig(data=tmp_path)
        async with running_state(RealDisk(tmp_path / "wal"), config) as state:
            await create(state)
            sender = Sender(state, "billing")
            await sender.init()
            for commit in (True, False):
                await sender.write("t", 0, b"a")
                await sender.write("t", 1, b"b")
                await sender.offsets(7)
                await sender.end(commit=commit)
            await sender.write("t", 2, b"open")

    asyncio.run(fill())
    return tmp_path


def dumped(data: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["wal", "dump", str(data), "--format", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_dump_shows_transactions_and_how_they_ended(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = dumped(data, capsys)
    roles = [each["transaction"] for each in entries if "transaction" in each]
    assert roles == [*["records"] * 2, *["commit"] * 2, *["records"] * 2, *["abort"] * 2, "records"]
    ends = [
        (at, event)
        for at, each in enumerate(entries)
        for event in each.get("events", ())
        if event["event"] == "Ended"
    ]
    assert [event["commit"] for _, event in ends] == [True, False]
    (at, commit), _ = ends
    assert (commit["name"], commit["org"], len(commit["partitions"])) == ("billing", 1, 2)
    group = entries[at + 1 : at + 1 + entries[at]["group"]]
    assert [each.get("journal", each.get("transaction")) for each in group] == [
        "__quafka_groups", "commit", "commit",
    ]  # fmt: skip
    assert main(["wal", "dump", str(data)]) == 0
    assert "transaction abort" in capsys.readouterr().out


def test_an_index_that_hides_a_transaction_is_wrong(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data / "wal" / index_name(0)
    index = bytearray(path.read_bytes())
    rows = range(FILE_HEADER_SIZE, len(index), INDEX_ROW_SIZE)
    at = next(at for at in rows if decode_row(index, at).flags & ROW_TRANSACTIONAL)
    index[at : at + INDEX_ROW_SIZE] = encode_row(decode_row(index, at)._replace(flags=0))
    assert main(["wal", "verify", str(data)]) == 0
    path.write_bytes(index)
    assert main(["wal", "verify", str(data)]) == 1
    assert "is wrong about the entry" in capsys.readouterr().out
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    assert main(["wal", "verify", str(data)]) == 0
