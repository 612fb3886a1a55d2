"""`quafka wal` on a log that was damaged by hand: verify, dump and repair."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quafka.cli import main
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups.table import Commit, Committed
from quafka_broker.journals.internal_topics import INTERNAL_ORG
from quafka_broker.ops import fetch
from quafka_broker.partitions.partition import topic_hash
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.segment import index_name, log_name
from quafka_broker.wal.verify import entries
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import IndexRow
from quafka_proto.record_codec import iter_records
from quafka_proto.records import read_header
from tests.unit.broker.tools import ORG, checked, context, running_state

PER_BATCH = 3
BATCHES = 30


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder: topic t with two partitions, over several segments."""
    (tmp_path / "wal").mkdir()

    async def fill() -> None:
        config = BrokerConfig(data=tmp_path)
        async with running_state(RealDisk(tmp_path / "wal"), config, 1_500) as state:
            topic, _ = await state.topics.create(ORG, "t", 2)
            for n in range(BATCHES):
                values = [b"%d" % (n // 2 * PER_BATCH + i) for i in range(PER_BATCH)]
                partition = state.log.partitions.get(topic.partition_id(n % 2))
                await state.log.queue.append(partition, checked(*values))

    asyncio.run(fill())
    return tmp_path


def flip(data: Path, name: str, at: int) -> None:
    path = data / "wal" / name
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def consumed(data: Path, partition: int) -> tuple[dict[int, bytes], set[ErrorCode]]:
    """What a consumer gets that continues after each answer, and skips one offset per error."""
    found: dict[int, bytes] = {}
    errors: set[ErrorCode] = set()

    async def read() -> None:
        config = BrokerConfig(data=data)
        async with running_state(RealDisk(data / "wal"), config) as state:
            offset, end = 0, 1
            while offset < end:
                op = FetchOps([FetchOp("t", partition, offset, 1 << 20)])
                (answer,) = (await fetch.handle(state, context(), op)).partitions
                end = answer.high_watermark
                if answer.error_code:
                    errors.add(ErrorCode(answer.error_code))
                    offset += 1
                for batch in answer.records:
                    header = read_header(batch)
                    for record in iter_records(batch):
                        found[record.offset] = record.value or b""
                    offset = header.base_offset + header.last_offset_delta + 1
            assert end == BATCHES // 2 * PER_BATCH

    asyncio.run(read())
    assert all(value == b"%d" % offset for offset, value in found.items())
    return found, errors


def verified(data: Path, capsys: pytest.CaptureFixture[str], code: int) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["wal", "verify", str(data), "--format", "json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_whole_log(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = verified(data, capsys, 0)
    assert len(reports) > 3
    assert sum(report["entries"] for report in reports) > BATCHES
    assert main(["wal", "verify", str(data)]) == 0
    assert "whole" in capsys.readouterr().out
    assert main(["wal", "repair", str(data)]) == 0
    assert capsys.readouterr().out == "nothing is damaged\n"


def contents(data: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in data.rglob("*") if path.is_file())
    return {
        str(path.relative_to(data)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in files
        if path.name != "broker.lock"
    }


def test_nothing_is_written_when_nothing_is_damaged(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (data / "wal").glob("checkpoint-*"):
        name.unlink()  # as after a crash: a start would write one, and begin an epoch
    before = contents(data)
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    assert capsys.readouterr().out == "nothing is damaged\n"
    assert contents(data) == before


def test_nothing_is_written_without_consent(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(data, log_name(1), (data / "wal" / log_name(1)).stat().st_size - 1)
    flip(data, index_name(2), 100)
    before = contents(data)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert main(["wal", "repair", str(data)]) == 1
    assert contents(data) == before


def test_a_repair_by_root_leaves_the_files_to_the_owner_of_the_folder(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is not root does as if it were, with a folder of its own."""
    owner = os.getuid() or 65534
    for path in (data, *data.rglob("*")):
        os.chown(path, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    flip(data, log_name(1), (data / "wal" / log_name(1)).stat().st_size - 1)
    (data / "wal" / index_name(2)).unlink()
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    owners = {path.name: path.stat().st_uid for path in (data, *data.rglob("*"))}
    assert owners == dict.fromkeys(owners, owner)
    assert len(owners) > 10


def test_a_damaged_batch_is_found_and_settled(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = (data / "wal" / log_name(1)).stat().st_size
    flip(data, log_name(1), size - 1)
    (bad,) = [report for report in verified(data, capsys, 1) if report["damages"]]
    assert bad["segment"] == 1
    (damage,) = bad["damages"]
    (lost,) = damage["lost"]
    partition = int(lost["virtual_topic"].rsplit("-", 1)[1])
    offsets = set(range(lost["first_offset"], lost["last_offset"] + 1))
    assert len(offsets) == PER_BATCH

    found, errors = consumed(data, partition)
    assert set(found) == set(range(BATCHES // 2 * PER_BATCH)) - offsets
    assert errors == {ErrorCode.CORRUPT_MESSAGE}
    assert consumed(data, 1 - partition)[1] == set(), "the others are served"

    assert main(["wal", "repair", str(data), "--yes"]) == 0
    assert "repaired: 1 damaged places" in capsys.readouterr().out
    assert consumed(data, partition) == (found, set())
    verified(data, capsys, 0)


def test_an_unreadable_header_between_good_entries(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an index, the offsets show whose records are lost."""
    for name in (data / "wal").glob("checkpoint-*"):
        name.unlink()
    (data / "wal" / index_name(1)).unlink()
    for at in range(32, 80):
        flip(data, log_name(1), at)
    before = [consumed(data, partition) for partition in (0, 1)]
    lost = [set(range(BATCHES // 2 * PER_BATCH)) - set(found) for found, _ in before]
    assert len(lost[0]) + len(lost[1]) == PER_BATCH
    assert main(["wal", "repair", str(data), "--yes", "--format", "json"]) == 0
    (about,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert about["repaired"][0]["segment"] == 1
    after = [consumed(data, partition) for partition in (0, 1)]
    assert after == [(found, set()) for found, _ in before]
    verified(data, capsys, 0)


@pytest.mark.parametrize("missing", [False, True])
def test_a_restored_segment_is_served_and_not_repaired_away(
    data: Path, capsys: pytest.CaptureFixture[str], missing: bool
) -> None:
    """A segment restored from a copy is served again, also if a checkpoint lists its damage."""
    good = {name: (data / "wal" / name).read_bytes() for name in (log_name(1), index_name(1))}
    if missing:
        for name in good:
            (data / "wal" / name).unlink()
    else:
        flip(data, log_name(1), len(good[log_name(1)]) - 1)
    before = [consumed(data, partition) for partition in (0, 1)]
    assert {error for _, errors in before for error in errors} == {ErrorCode.CORRUPT_MESSAGE}
    for name, content in good.items():
        (data / "wal" / name).write_bytes(content)
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    every = {n: b"%d" % n for n in range(BATCHES // 2 * PER_BATCH)}
    assert [consumed(data, partition) for partition in (0, 1)] == [(every, set())] * 2
    verified(data, capsys, 0)


def test_a_bad_checkpoint_is_said_and_replaced(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (name,) = [path.name for path in (data / "wal").glob("checkpoint-*")]
    flip(data, name, 50)
    (bad,) = [line for line in verified(data, capsys, 1) if "checkpoint" in line]
    assert bad["checkpoint"] == name
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    assert "1 checkpoints" in capsys.readouterr().out
    verified(data, capsys, 0)


@pytest.fixture
def nameless(data: Path) -> Path:
    """As above, but with the creation of topic t damaged and without a checkpoint."""
    for path in (data / "wal").glob("checkpoint-*"):
        path.unlink()
    (row,) = [
        row
        for row in entries(RealDisk(data / "wal"), 0)
        if isinstance(row, IndexRow) and row.org_id == INTERNAL_ORG and row.base_offset == 1
    ]
    flip(data, log_name(0), row.end - 1)
    return data


HASH = topic_hash(ORG, "t").hex()


def test_a_topic_without_a_name_is_kept_until_it_is_given_one(
    nameless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["wal", "repair", str(nameless), "--yes"]) == 1
        assert f"a nameless topic of org {ORG} is kept: hash {HASH}" in capsys.readouterr().out
    assert main(["wal", "repair", str(nameless), "--yes", "--name", f"{HASH}=u"]) == 2
    assert "the name 'u' matches no nameless topic" in capsys.readouterr().err
    assert main(["wal", "repair", str(nameless), "--yes", "--name", f"{HASH}=t"]) == 0
    assert "1 topics" in capsys.readouterr().out
    every = {n: b"%d" % n for n in range(BATCHES // 2 * PER_BATCH)}
    assert [consumed(nameless, partition) for partition in (0, 1)] == [(every, set())] * 2
    verified(nameless, capsys, 0)
    assert main(["wal", "repair", str(nameless), "--yes"]) == 0


def test_a_topic_without_a_name_may_be_dropped(
    nameless: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("no\nyes\n"))
    assert main(["wal", "repair", str(nameless), "--drop", HASH]) == 1
    asked = capsys.readouterr().out
    assert f"(hash {HASH}, 2 partitions, 90 records): its records will be deleted" in asked
    assert main(["wal", "repair", str(nameless), "--drop", HASH]) == 0
    assert main(["wal", "repair", str(nameless), "--yes"]) == 0
    assert main(["wal", "repair", str(nameless), "--drop", HASH]) == 2


def test_an_offset_of_a_group_tells_the_name(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def commit() -> None:
        async with running_state(RealDisk(data / "wal"), BrokerConfig(data=data)) as state:
            offset = Committed(0, 7, -1, "", 0)
            await state.groups.offsets.commit(ORG, "g", Commit.of({("t", 0): offset}))

    asyncio.run(commit())
    for path in (data / "wal").glob("checkpoint-*"):
        path.unlink()
    (row,) = [
        row
        for row in entries(RealDisk(data / "wal"), 0)
        if isinstance(row, IndexRow) and row.org_id == INTERNAL_ORG and row.base_offset == 1
    ]
    flip(data, log_name(0), row.end - 1)
    assert main(["wal", "repair", str(data), "--yes", "--format", "json"]) == 0
    (about,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert about["topics"] == [{"org": ORG, "hash": HASH, "name": "t", "topic": "restored"}]
    assert len(consumed(data, 0)[0]) == BATCHES // 2 * PER_BATCH


def test_a_missing_segment(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "wal" / log_name(2)).unlink()
    before = [consumed(data, partition) for partition in (0, 1)]
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    after = [consumed(data, partition) for partition in (0, 1)]
    assert after == [(found, set()) for found, _ in before]
    assert {error for _, errors in before for error in errors} == {ErrorCode.CORRUPT_MESSAGE}
    verified(data, capsys, 0)


@pytest.mark.parametrize("spoil", ["row", "missing", "foreign"])
def test_an_index_is_made_again(data: Path, capsys: pytest.CaptureFixture[str], spoil: str) -> None:
    good = (data / "wal" / index_name(1)).read_bytes()
    if spoil == "row":
        flip(data, index_name(1), 40)
    elif spoil == "missing":
        (data / "wal" / index_name(1)).unlink()
    else:
        (data / "wal" / index_name(1)).write_bytes((data / "wal" / index_name(2)).read_bytes())
    (bad,) = [report for report in verified(data, capsys, 1) if report["index"]]
    assert bad["segment"] == 1
    assert main(["wal", "repair", str(data), "--yes"]) == 0
    assert (data / "wal" / index_name(1)).read_bytes() == good
    verified(data, capsys, 0)


def test_nothing_is_done_without_consent(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(data, log_name(1), 100)
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert main(["wal", "repair", str(data)]) == 1
    asked = capsys.readouterr().out
    assert "segment 1" in asked
    assert asked.endswith("Repair? [y/N] ")
    assert len([r for r in verified(data, capsys, 1) if r["damages"]]) == 1


def test_a_running_brokers_log_is_not_repaired_but_verified(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = DataFolder(data)
    folder.hold()
    assert main(["wal", "repair", str(data), "--yes"]) == 2
    assert "held by another broker" in capsys.readouterr().err
    verified(data, capsys, 0)
    folder.release()


def test_dump(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wal", "dump", str(data), "--format", "json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ids = [entry["id"] for entry in entries]
    assert ids == sorted(ids)
    assert sum(entry["records"] for entry in entries) == ids[-1] + entries[-1]["records"]
    flip(data, log_name(1), 100)
    assert main(["wal", "dump", str(data), "--segment", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "damaged" in line]) == 1
    assert len([line for line in lines if "virtual_topic" in line]) == len(lines) - 1


def test_a_dump_that_nobody_reads_ends_silently(data: Path) -> None:
    command = [sys.executable, "-m", "quafka", "wal", "dump", str(data)]
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(command, check=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wal", "verify", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"quafka: {tmp_path} has no log\n"
