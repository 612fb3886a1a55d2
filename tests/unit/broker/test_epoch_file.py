"""When a new leader epoch begins; it is durable before it is used."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from quafka_broker.partitions.errors import StorageError
from quafka_broker.wal.epoch_file import (
    NAME,
    SKIPPED,
    EpochFile,
    Evidence,
    LastWriter,
    Saved,
    epoch_of_start,
    load,
    require_new_epoch,
    save,
)
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.reserve import Reserve
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_ROW_SIZE, decode_row, encode_row
from quafka_proto.records import read_header
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, append, open_log, topic_id, values_of

COMMIT, NEVER, INTERVAL = FsyncPolicy(), FsyncPolicy(0.0), FsyncPolicy(3_600.0)
SAFE, UNSYNCED, LOST, RESTORED = LastWriter
BEFORE_EPOCHS = Path(__file__).parent / "before_epochs.json"


@pytest.mark.parametrize(
    ("saved", "found", "syncs_first", "epoch"),
    [
        # A new log, whatever its writer promises.
        (None, Evidence(empty=True), True, 0),
        (None, Evidence(empty=True), False, 0),
        # A log from before epochs: its last writer is assumed to have had this setting.
        (None, Evidence(), True, 0),
        (None, Evidence(), False, 1),
        (None, Evidence(torn=True), True, 1),
        (None, Evidence(damaged=True), True, 1),
        # No record can be missing.
        (Saved(4, SAFE), Evidence(4), True, 4),
        (Saved(4, SAFE), Evidence(2), False, 4),
        (Saved(4, SAFE), Evidence(4, torn=True), True, 4),
        # Records may be missing.
        (Saved(4, UNSYNCED), Evidence(4), True, 5),
        (Saved(4, UNSYNCED), Evidence(3), False, 5),
        (Saved(4, SAFE), Evidence(4, damaged=True), True, 5),
        (Saved(4, LOST), Evidence(2), True, 5),
        # Unknown epochs may have been used.
        (Saved(4, RESTORED), Evidence(2), True, 4 + SKIPPED),
        (Saved(0, RESTORED), Evidence(7), True, 7 + SKIPPED),
        (Saved(3, SAFE), Evidence(7), True, 7 + SKIPPED),
        (None, Evidence(7), True, 7 + SKIPPED),
        (None, Evidence(known=True), True, SKIPPED),
    ],
)
def test_the_rule(saved: Saved | None, found: Evidence, syncs_first: bool, epoch: int) -> None:
    assert epoch_of_start(saved, found, syncs_first=syncs_first) == epoch


def test_the_file_reads_back_and_damage_is_noticed() -> None:
    disk = MemoryDisk()
    assert load(disk) is None
    for facts in (Saved(7, UNSYNCED), Saved(7, SAFE, 1 << 40)):
        save(disk, facts)
        assert load(disk) == facts
        good = bytes(disk.files[NAME].data)
        spoilt = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good))]
        for data in (*spoilt, b"", good[:-1], good + b"x"):
            disk.put(NAME, data)
            assert load(disk) == Saved(-1, RESTORED)


@pytest.mark.parametrize(
    ("saved", "takeover", "found", "epoch", "left"),
    [
        # A new log; then takeovers, of which nothing is written.
        (None, 1, Evidence(empty=True), 0, Saved(0, SAFE, 1)),
        (Saved(0, SAFE, 1), 2, Evidence(0), 1, Saved(0, SAFE, 1)),
        (Saved(0, SAFE, 1), 7, Evidence(3), 6, Saved(0, SAFE, 1)),
        (Saved(5, SAFE, 7), 8, Evidence(2), 6, Saved(5, SAFE, 7)),
        (Saved(5, SAFE, 7), 7 + SKIPPED, Evidence(2), 5 + SKIPPED, Saved(1_005, SAFE, 1_007)),
        # Records may be lost: the epoch rises in any case.
        (Saved(5, SAFE, 7), 8, Evidence(5, damaged=True), 6, Saved(5, SAFE, 7)),
        (Saved(5, LOST, 7), 9, Evidence(5), 7, Saved(7, SAFE, 9)),
        # A log of before, one that was restored, and one of another store.
        (Saved(5, SAFE), 9, Evidence(5), 6, Saved(6, SAFE, 9)),
        (Saved(5, RESTORED), 1, Evidence(5), 6 + SKIPPED - 1, Saved(5 + SKIPPED, SAFE, 1)),
        (Saved(5, SAFE, 9), 2, Evidence(5), 6, Saved(6, SAFE, 2)),
    ],
)
def test_takeovers(
    saved: Saved | None, takeover: int, found: Evidence, epoch: int, left: Saved
) -> None:
    disk = MemoryDisk()
    if saved is not None:
        save(disk, saved)
    file = EpochFile(disk, Reserve(disk, 0), syncs_first=True, takeover=takeover)
    assert file.begin(found) == epoch
    assert load(disk) == left
    again = EpochFile(disk, Reserve(disk, 0), syncs_first=True, takeover=takeover + 1)
    assert again.begin(found._replace(damaged=False)) == epoch + 1
    file.gave_up_records()
    later = EpochFile(disk, Reserve(disk, 0), syncs_first=True, takeover=takeover + 2)
    assert later.begin(found) > epoch + 1


async def epoch_after(disk: MemoryDisk, fsync: FsyncPolicy) -> int:
    """The epoch that a start on a copy of the disk begins."""
    async with open_log(disk.copy(), fsync) as log:
        return log.epochs.current


@pytest.mark.parametrize("fsync", [NEVER, INTERVAL], ids=["never", "interval"])
async def test_an_unclean_end_of_a_writer_that_acknowledges_first(fsync: FsyncPolicy) -> None:
    disk = MemoryDisk()
    async with open_log(disk, fsync) as log:
        assert log.epochs.current == 0
        await append(log, "a", b"1")
        killed = disk.copy()
    for policy in (fsync, COMMIT):
        assert await epoch_after(killed, policy) == 1
        assert await epoch_after(disk, policy) == 0, "it was closed"


async def test_a_writer_that_syncs_first_keeps_its_epoch() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        killed = disk.copy()
        done = len(disk.done)
    torn = killed.copy()
    log_file = torn.files["000000000000.log"]
    torn.put(log_file.name, bytes(log_file.data) + b"half a write")
    assert [await epoch_after(d, COMMIT) for d in (disk, killed, torn)] == [0, 0, 0]
    assert ("rename", NAME) not in disk.done[done:], "nothing to note at the end"


async def test_batches_and_rows_have_their_epoch() -> None:
    disk = MemoryDisk()
    for turn in range(3):
        async with open_log(disk, NEVER) as log:
            await append(log, "a", b"%d" % turn)
            await append(log, "b", b"%d" % turn)
            left = disk.copy()
        disk = left
    for gone in ("", "checkpoint", ".oidx"):
        for name in [name for name in disk.files if gone and gone in name]:
            del disk.files[name]
        async with open_log(disk.copy(), NEVER) as log:
            assert log.epochs.dump() == [(0, 0), (1, 2), (2, 4), (3, 6)]
            partition = log.partitions.get(topic_id("b"))
            assert await values_of(log, partition) == [b"0", b"1", b"2"]
            batches = await log.reader.read(partition, 0, EVERYTHING, at_least_one=True)
            assert [read_header(batch).leader_epoch for batch in batches] == [0, 1, 2]
            assert [log.epochs.epoch_at(partition, offset) for offset in range(4)] == [0, 1, 2, 3]
            index = log._contents.segments[0].index
            data = index.read(FILE_HEADER_SIZE, index.size())
            rows = [decode_row(data, at) for at in range(0, len(data), INDEX_ROW_SIZE)]
            assert [row.leader_epoch for row in rows] == [0, 0, 1, 1, 2, 2]


async def test_an_epoch_is_durable_before_it_is_used() -> None:
    disk = MemoryDisk(record=True)
    async with open_log(disk, NEVER) as log:
        await append(log, "a", b"1")
        killed = disk.copy()
    left = MemoryDisk(record=True)
    for file in killed.files.values():
        left.put(file.name, bytes(file.data))
    async with open_log(left, NEVER) as log:
        first = len(left.done)
        assert log.epochs.current == 1
        assert ("sync_names", "") in left.done
        nothing = left.snapshots[first - 1].after_power_cut(lambda *_: False, False)
        assert load(nothing) == Saved(1, UNSYNCED)
        assert await epoch_after(nothing, NEVER) == 2


async def test_after_a_failed_sync_of_acknowledged_records() -> None:
    disk = MemoryDisk()
    async with open_log(disk, INTERVAL) as log:
        await append(log, "a", b"1")
        disk.sync_fails = True
        with pytest.raises(OSError, match="fsync"):
            await log.checkpoint()
        disk.sync_fails = False
        with pytest.raises(StorageError):
            await append(log, "a", b"2")
    assert await epoch_after(disk, COMMIT) == 1


async def test_on_a_full_disk_the_reserve_is_used() -> None:
    disk = MemoryDisk()
    async with open_log(disk, NEVER) as log:
        await append(log, "a", b"1")
        await log.checkpoint()
        left = disk.copy()
    left.put("reserve", bytes(1_000))
    left.room = 0
    log = Log(left, NEVER, 1 << 20, reserve_bytes=1_000)
    log.open(log._contents.producers)
    assert log.epochs.current == 1
    assert "reserve" not in left.files
    log.settle(dict.fromkeys(log.partitions.ids(), 0))
    await log.close()
    assert load(left) == Saved(1, SAFE)


async def test_a_repair_that_gives_up_records() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for value in (b"1", b"2" * 50, b"3"):
            await append(log, "a", value)
    data = disk.files["000000000000.log"].data
    data[data.index(b"2" * 50)] ^= 1
    log = Log(disk, COMMIT, 1 << 20)
    log.open(log._contents.producers)
    assert log.epochs.current == 0, "what the checkpoint knows is not read"
    log.settle(dict.fromkeys(log.partitions.ids(), 0))
    log.start()
    assert await values_of(log, "a") == [b"1"]
    await log.repair()
    async with open_log(disk) as log:
        assert log.epochs.current == 1
        partition = log.partitions.get(topic_id("a"))
        batches = await log.reader.read(partition, 0, EVERYTHING, at_least_one=True)
        assert [read_header(batch).leader_epoch for batch in batches] == [0, 0, 0]
        await append(log, "a", b"4")
    assert await epoch_after(disk, COMMIT) == 1


@pytest.mark.parametrize("restored", [False, True])
async def test_a_folder_that_must_begin_a_new_epoch(restored: bool) -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
    if restored:
        del disk.files[NAME]
    require_new_epoch(disk, restored=restored)
    require_new_epoch(disk, restored=False)
    expected = SKIPPED if restored else 1
    async with open_log(disk) as log:
        assert log.epochs.current == expected
        assert await values_of(log, "a") == [b"1"]
    assert await epoch_after(disk, COMMIT) == expected


async def test_without_the_file_epochs_go_on_above_all_that_may_have_been_used() -> None:
    disk = MemoryDisk()
    async with open_log(disk, NEVER) as log:
        await append(log, "a", b"1")
    del disk.files[NAME]
    assert await epoch_after(disk, COMMIT) == SKIPPED
    disk.put(NAME, b"no such thing")
    assert await epoch_after(disk, COMMIT) == SKIPPED


async def test_a_lost_tail_begins_a_new_epoch() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        await log.checkpoint()
        await append(log, "a", b"2")
        await append(log, "a", b"3")
        left = disk.copy()
    log_data, index = (left.files[f"000000000000.{kind}"].data for kind in ("log", "oidx"))
    row = decode_row(index, FILE_HEADER_SIZE + INDEX_ROW_SIZE)
    log_data[row.position] ^= 1  # durable, according to the next entry
    del index[FILE_HEADER_SIZE + INDEX_ROW_SIZE :]
    async with open_log(left) as log:
        assert log.damages
        assert log.epochs.current == 1
    assert await epoch_after(left, COMMIT) == 1, "the damage is known by then"


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_a_log_from_before_epochs_reads_as_epoch_0(checkpoint: bool) -> None:
    disk = MemoryDisk()
    for name, data in json.loads(BEFORE_EPOCHS.read_text()).items():
        if checkpoint or not name.startswith("checkpoint"):
            disk.put(name, base64.b64decode(data))
    for name in ("000000000000.oidx", "000000000001.oidx"):
        data = disk.files[name].data
        for at in range(FILE_HEADER_SIZE, len(data), INDEX_ROW_SIZE):
            assert encode_row(decode_row(data, at)) == data[at : at + INDEX_ROW_SIZE]
    for fsync, epoch in ((COMMIT, 0), (NEVER, 1)):
        left = disk.copy()
        async with open_log(left, fsync) as log:
            assert not log.damages
            assert log.epochs.current == epoch
            partition = log.partitions.get(topic_id("a"))
            assert await values_of(log, partition) == [b"%d" % n for n in range(6)]
            assert (
                log.epochs.end_of(partition, 0).end_offset,
                log.epochs.epoch_at(partition, 5),
            ) == (
                6,
                0,
            )
            await append(log, "a", b"new")
        async with open_log(left, fsync) as log:
            partition = log.partitions.get(topic_id("a"))
            assert (await values_of(log, partition))[5:] == [b"5", b"new"]
            assert (log.epochs.current, log.epochs.epoch_at(partition, 6)) == (epoch, epoch)
