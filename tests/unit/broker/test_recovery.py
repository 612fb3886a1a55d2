"""Opening logs whose files are missing, damaged or misleading."""

from __future__ import annotations

import re

import pytest

from quafka_broker.partitions.errors import CorruptError
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.segment import index_name, log_name
from quafka_broker.wal.verify import verify
from quafka_proto.log_format import ENTRY_HEADER_SIZE, FILE_HEADER_SIZE, INDEX_ROW_SIZE
from quafka_proto.records import crc32c
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, append, open_log, topic_id, values_of

SEGMENT = 400
VALUES = [b"%02d" % n * 10 for n in range(12)]


async def written(segment_bytes: int = SEGMENT) -> tuple[MemoryDisk, int]:
    """A closed log of several segments, with a checkpoint; the last segment's number."""
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=segment_bytes) as log:
        for value in VALUES:
            await append(log, "a", value)
    return disk, max(int(name[:-4]) for name in disk.files if name.endswith(".log"))


def files(disk: MemoryDisk) -> dict[str, bytes]:
    return {n: bytes(f.data) for n, f in disk.files.items() if not n.startswith("checkpoint")}


async def opens(disk: MemoryDisk) -> None:
    async with open_log(disk) as log:
        assert not log.damages
        assert await values_of(log, "a") == VALUES


async def loses(disk: MemoryDisk, lost: set[int]) -> None:
    """Exactly these offsets cannot be read, now and after a restart; nothing shifts."""
    for turn in range(3):
        left = disk.crashed() if turn == 2 else disk
        async with open_log(left) as log:
            partition = log.partitions.get(topic_id("a"))
            assert partition.log_start == 0
            assert {
                n for d in log.damages for of in d.lost for n in range(of.first, of.end)
            } == lost
            for offset, value in enumerate(VALUES):
                if offset in lost:
                    with pytest.raises(CorruptError):
                        await log.reader.read(partition, offset, EVERYTHING, at_least_one=True)
                else:
                    assert (await values_of(log, partition, offset))[0] == value
            if not turn:
                assert await append(log, "a", b"after") == len(VALUES)
            assert (await values_of(log, partition, len(VALUES))) == [b"after"]


def offsets_in(disk: MemoryDisk, number: int) -> set[int]:
    """The offsets whose batches are in a segment, by its index."""
    data = disk.files[index_name(number)].data
    rows = range(FILE_HEADER_SIZE, len(data), INDEX_ROW_SIZE)
    return {int.from_bytes(data[at + 8 : at + 16], "big") for at in rows}


def spoil_index(disk: MemoryDisk, number: int, how: str) -> None:
    data = disk.files[index_name(number)].data
    match how:
        case "missing":
            del disk.files[index_name(number)]
        case "empty":
            data.clear()
        case "short":
            del data[-1:]
        case "header":
            data[0] ^= 1
        case "row":
            data[FILE_HEADER_SIZE + 3] ^= 1
        case "other":
            data[:] = disk.files[index_name((number + 1) % 3)].data
        case _:
            data += b"\xff" * INDEX_ROW_SIZE


@pytest.mark.parametrize("how", ["missing", "empty", "short", "header", "row", "other", "longer"])
async def test_an_index_is_rebuilt(how: str) -> None:
    disk, last = await written()
    good = files(disk)
    assert last > 2
    for checkpoint in (True, False):
        if checkpoint and how == "row":
            continue  # a start does not read what the checkpoint covers
        for number in range(last + 1):
            left = disk.copy() if checkpoint else disk.crashed()
            spoil_index(left, number, how)
            await opens(left)
            assert files(left) == good


@pytest.mark.parametrize("place", ["version", "kind"])
@pytest.mark.parametrize("checkpoint", [True, False])
async def test_a_segment_of_a_later_version_is_refused_and_nothing_changes(
    place: str, checkpoint: bool
) -> None:
    """After a rollback, say. Recovered as damaged, the segment would lose its records."""
    disk, last = await written()
    for number in range(last + 1):
        left = disk.copy() if checkpoint else disk.crashed()
        header = left.files[log_name(number)].data
        header[{"version": 8, "kind": 9}[place]] = 9
        header[28:32] = crc32c(header[:28]).to_bytes(4, "big")
        before = {name: bytes(file.data) for name, file in left.files.items()}
        with pytest.raises(
            DamagedLogError, match=r"\d\.log: .* a later version of Quafka wrote it"
        ):
            await opens(left)
        with pytest.raises(DamagedLogError, match="restore the snapshot"):
            list(verify(left))
        assert {name: bytes(file.data) for name, file in left.files.items()} == before


@pytest.mark.parametrize("segment", [1, -1])
async def test_a_damaged_row_is_never_used_and_is_rebuilt(segment: int) -> None:
    """While the log is in use, also in the segment that is appended to."""
    disk, _ = await written()
    name = [name for name in disk.names() if name.endswith(".oidx")][segment]
    good = bytes(disk.files[name].data)
    disk.files[name].data[FILE_HEADER_SIZE + 3] ^= 1
    (offset, *_) = sorted(offsets_in(disk, int(name[:-5])))
    async with open_log(disk) as log:
        assert await log.reader.read(
            log.partitions.get(topic_id("a")), offset, EVERYTHING, at_least_one=True
        )
        assert bytes(disk.files[name].data) == good
        await append(log, "b", b"more")
    await opens(disk)
    await opens(disk.crashed())


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("index", [True, False])
async def test_a_missing_segment_is_noticed(checkpoint: bool, index: bool) -> None:
    disk, last = await written()
    for number in range(last + 1):
        if number == last and not (checkpoint or index):
            continue  # no trace of it is left
        left = disk.copy() if checkpoint else disk.crashed()
        lost = offsets_in(left, number)
        del left.files[log_name(number)]
        if not index:
            del left.files[index_name(number)]
        async with open_log(left) as log:
            found = {n for d in log.damages for of in d.lost for n in range(of.first, of.end)}
            assert found == lost
            assert log.partitions.get(topic_id("a")).high_watermark == len(VALUES)
            assert await append(log, "a", b"after") == len(VALUES)


async def test_an_index_without_its_log_after_a_crash_does_no_harm() -> None:
    disk, last = await written()
    for content in (b"", bytes(FILE_HEADER_SIZE)):
        left = disk.copy()
        left.put(index_name(last + 1), content)
        async with open_log(left, segment_bytes=1) as log:
            assert await append(log, "a", b"rolls") == len(VALUES)


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("index", [True, False])
async def test_a_sealed_segment_is_never_cut(checkpoint: bool, index: bool) -> None:
    disk, _ = await written()
    size = disk.files[log_name(1)].size()
    offsets = sorted(offsets_in(disk, 1))
    entry = (size - FILE_HEADER_SIZE) // len(offsets)
    for cut, kept in (
        (size - 1, 2),
        (size - entry, 2),
        (size - entry - 1, 1),
        (FILE_HEADER_SIZE, 0),
    ):
        lost = set(offsets[kept:])
        left = disk.copy() if checkpoint else disk.crashed()
        del left.files[log_name(1)].data[cut:]
        if not index:
            del left.files[index_name(1)]
        await loses(left, lost)


async def test_bytes_after_a_sealed_segment_cost_nothing() -> None:
    disk, _ = await written()
    disk.files[log_name(1)].data.extend(b"?")
    await loses(disk, set())


@pytest.mark.parametrize("index", [True, False])
async def test_a_damaged_file_header(index: bool) -> None:
    disk, _ = await written()
    disk.files[log_name(1)].data[20] ^= 1
    if index:
        await loses(disk, set())
    else:
        lost = offsets_in(disk, 1)
        disk.files[index_name(1)].data[20] ^= 1
        await loses(disk, lost)


async def test_records_that_a_checkpoint_covers_may_not_be_missing() -> None:
    """Whatever is left of the last segment: lost acknowledged records keep their offsets."""
    disk, _ = await written(1 << 20)
    size = disk.files[log_name(0)].size()
    entry = (size - FILE_HEADER_SIZE) // len(VALUES)
    for cut, kept in ((size - 1, 11), (size - entry, 11), (FILE_HEADER_SIZE + 2 * entry, 2)):
        for index in (True, False):
            left = disk.copy()
            del left.files[log_name(0)].data[cut:]
            if not index:
                del left.files[index_name(0)]
            async with open_log(left) as log:
                found = {n for d in log.damages for of in d.lost for n in range(of.first, of.end)}
                assert found == set(range(kept, 12))
                assert await append(log, "a", b"after") == len(VALUES)
                assert await values_of(log, "a", 12) == [b"after"]


async def test_damage_names_segment_position_and_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, _ = await written()
    disk = disk.crashed()
    disk.files[log_name(1)].data[-1] ^= 1
    del disk.files[index_name(1)]
    await opens_with_damage(disk)
    key = re.escape(topic_id("a").key)
    assert re.search(rf"segment 1, positions \d+ to \d+: .*{key} offsets 5 to 5", caplog.text)


async def opens_with_damage(disk: MemoryDisk) -> None:
    async with open_log(disk) as log:
        assert len(log.damages) == 1


@pytest.mark.parametrize("cached", [True, False])
async def test_a_wrong_byte_is_never_returned(cached: bool) -> None:
    """At every byte of an entry's batch: the read finds it; the others are served."""
    disk, _ = await written(1 << 20)
    size = disk.files[log_name(0)].size()
    entry = (size - FILE_HEADER_SIZE) // len(VALUES)
    for at in range(FILE_HEADER_SIZE + 3 * entry + ENTRY_HEADER_SIZE, FILE_HEADER_SIZE + 4 * entry):
        left = disk.copy()
        left.cached = cached
        left.files[log_name(0)].data[at] ^= 1
        async with open_log(left) as log:
            assert await values_of(log, "a") == VALUES[:3], at
            with pytest.raises(CorruptError):
                await values_of(log, "a", 3)
            assert await values_of(log, "a", 4) == VALUES[4:]
            assert log.health().damages == 1
        async with open_log(left) as log:
            assert log.health().damages == 1, "a restart knows it"


async def test_a_crash_while_a_segment_is_begun() -> None:
    disk, last = await written()
    for content in (b"", b"QUAF", bytes(FILE_HEADER_SIZE)):
        for index in (True, False):
            left = disk.copy()
            left.put(log_name(last + 1), content)
            if index:
                left.put(index_name(last + 1), b"")
            await opens(left)
            await opens(left.copy())
            assert log_name(last + 1) not in left.files


async def test_a_record_that_looks_like_an_entry_does_not_mislead() -> None:
    """A torn write whose value holds a copy of a log with entries that claim durability."""
    other, _ = await written(1 << 20)
    copied = bytes(other.files[log_name(0)].data)
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        await append(log, "a", copied * 3)
    del disk.files[log_name(0)].data[-1:]
    async with open_log(disk.crashed()) as log:
        assert await values_of(log, "a") == [b"1"]


async def test_a_torn_tail_full_of_entry_starts_is_searched_in_linear_time() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=1 << 30) as log:
        await append(log, "a", b"1")
        await append(log, "a", b"\x51\x45\x01\x00\x00\xff\xff\xff" * (1 << 17))
    del disk.files[log_name(0)].data[-1:]
    disk = disk.crashed()
    read = count_reads(disk, log_name(0))
    async with open_log(disk) as log:
        assert await values_of(log, "a") == [b"1"]
    assert len(read) < 50, "each start would be followed to its end"


def count_reads(disk: MemoryDisk, name: str) -> list[int]:
    """Positions that are read in a file from now on."""
    read: list[int] = []
    file = disk.files[name]
    original = file.read

    def counted(position: int, size: int) -> bytes:
        read.append(position)
        return original(position, size)

    file.read = counted  # type: ignore[method-assign]
    return read


async def test_without_a_checkpoint_only_the_possibly_torn_tail_is_verified() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for _ in range(50):
            await append(log, "a", b"x" * 1_000)
    disk = disk.crashed()
    read = count_reads(disk, log_name(0))
    async with open_log(disk) as log:
        assert log.partitions.get(topic_id("a")).high_watermark == 50
    # Beside the header: only the last entry, which no other entry calls durable.
    assert min(position for position in read if position) > disk.files[log_name(0)].size() - 2_000


async def test_with_a_checkpoint_only_the_log_after_it_is_read() -> None:
    disk, last = await written()
    async with open_log(disk) as log:
        before = disk.files[log_name(last)].size(), disk.files[index_name(last)].size()
        reads = {
            name: count_reads(disk, name) for name in disk.files if not name.startswith("check")
        }
        again = Log(disk, FsyncPolicy(), SEGMENT)
        await append(log, "a", b"behind")
        again.open(Producers())
        again.settle(dict.fromkeys(again.partitions.ids(), 0))
        assert again.partitions.get(topic_id("a")).high_watermark == len(VALUES) + 1
        await again.close()
    for name, positions in reads.items():
        start = 0
        if name in (log_name(last), index_name(last)):
            start = before[name.endswith(".oidx")]
        assert all(not position or position >= start for position in positions), name
        assert name in (log_name(last), index_name(last)) or not any(positions), name


async def test_a_sealed_segment_cut_between_entries_before_an_empty_one() -> None:
    """No later entry shows it, but the index does."""
    disk, last = await written()
    sealed = disk.files[log_name(last - 1)].data
    entries = (disk.files[index_name(last - 1)].size() - FILE_HEADER_SIZE) // INDEX_ROW_SIZE
    del sealed[-((len(sealed) - FILE_HEADER_SIZE) // entries) :]
    for name in (log_name(last), index_name(last)):
        del disk.files[name].data[FILE_HEADER_SIZE:]
    lost = max(offsets_in(disk, last - 1))
    async with open_log(disk.crashed()) as log:
        (damage,) = log.damages
        assert [(of.first, of.end) for of in damage.lost] == [(lost, lost + 1)]


async def test_records_are_durable_before_they_are_served_after_a_crash() -> None:
    """kill -9 leaves unsynced data in the page cache; a later power cut must not take it back."""
    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.0)) as log:
        await append(log, "a", b"1")
        assert len(disk.files[log_name(0)].durable) == FILE_HEADER_SIZE
        async with open_log(disk) as again:
            file = disk.files[log_name(0)]
            assert again.partitions.get(topic_id("a")).high_watermark == 1
            assert file.durable == bytes(file.data)


async def test_a_sealed_segment_and_its_index_are_durable() -> None:
    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.0), segment_bytes=200) as log:
        await append(log, "a", b"x" * 200)
        await append(log, "a", b"y")
        for name in (log_name(0), index_name(0)):
            assert disk.files[name].durable == bytes(disk.files[name].data)


async def test_a_block_of_the_files_past_in_the_torn_tail_is_cut_off() -> None:
    """A valid entry in a place where it was not written, after all acknowledged entries."""
    disk, _ = await written(1 << 20)
    data = disk.files[log_name(0)].data
    first = bytes(data[FILE_HEADER_SIZE : FILE_HEADER_SIZE + len(data[FILE_HEADER_SIZE:]) // 12])
    data += first
    await opens(disk.copy())
    await opens(disk.crashed())


async def test_segments_of_another_log_contradict_it() -> None:
    """Files of another log are refused, not guessed at."""
    disk = (await written())[0].crashed()
    other, _ = await written(1 << 20)
    for name in (log_name, index_name):
        disk.put(name(2), bytes(disk.files[name(1)].data))
        disk.put(name(1), bytes(other.files[name(0)].data))
    with pytest.raises(DamagedLogError, match="where 12 is next"):
        async with open_log(disk):
            pass
