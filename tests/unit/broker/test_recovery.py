"""Opening logs whose files are missing, damaged or misleading."""

from __future__ import annotations

import re

import pytest

from quafka_broker.wal.log import FsyncPolicy
from quafka_broker.wal.recovery import DamagedLogError
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.log_format import ENTRY_HEADER_SIZE, FILE_HEADER_SIZE, INDEX_ROW_SIZE
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import append, open_log, topic_id, values_of

SEGMENT = 400
VALUES = [b"%d" % n * 20 for n in range(12)]


async def written(segment_bytes: int = SEGMENT) -> tuple[MemoryDisk, tuple[int, int]]:
    """A cleanly closed log of several segments, and its clean end."""
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=segment_bytes) as log:
        for value in VALUES:
            await append(log, "a", value)
        end = await log.close()
    assert end is not None
    return disk, end


async def refuses(disk: MemoryDisk, message: str, clean_end: tuple[int, int] | None = None) -> None:
    before = {name: bytes(file.data) for name, file in disk.files.items() if "log" in name}
    with pytest.raises(DamagedLogError, match=message):
        async with open_log(disk, clean_end=clean_end):
            pass
    after = {name: bytes(file.data) for name, file in disk.files.items() if "log" in name}
    assert after == before, "what is damaged is left as it is"


async def opens(disk: MemoryDisk, clean_end: tuple[int, int] | None = None) -> None:
    async with open_log(disk, clean_end=clean_end) as log:
        assert await values_of(log, "a") == VALUES


async def test_an_index_is_made_again_when_missing_short_or_damaged() -> None:
    disk, end = await written()
    good = {name: bytes(file.data) for name, file in disk.files.items()}
    assert end[0] > 2
    for clean in (None, end):
        for number in range(end[0] + 1):
            for spoil in ("missing", "empty", "header", "short", "row", "long", "other"):
                left = disk.copy()
                data = left.files[index_name(number)].data
                if spoil == "missing":
                    del left.files[index_name(number)]
                elif spoil == "empty":
                    data.clear()
                elif spoil == "header":
                    data[0] ^= 1
                elif spoil == "short":
                    del data[-1:]
                elif spoil == "row":
                    data[FILE_HEADER_SIZE + 3] ^= 1
                elif spoil == "long":
                    data += b"\xff" * INDEX_ROW_SIZE
                else:
                    data[:] = left.files[index_name((number + 1) % end[0])].data
                await opens(left, clean)
                assert {name: bytes(file.data) for name, file in left.files.items()} == good


async def test_a_missing_segment_is_noticed() -> None:
    disk, end = await written()
    for number in range(end[0]):
        left = disk.copy()
        del left.files[log_name(number)]
        await refuses(left, re.escape(f"{log_name(number)} is missing"))
    for clean, with_index in ((end, False), (end, True), (None, True)):
        left = disk.copy()
        del left.files[log_name(end[0])]
        if not with_index:
            del left.files[index_name(end[0])]
        await refuses(left, re.escape(f"{log_name(end[0])} is missing"), clean)


async def test_an_index_that_a_crash_left_alone_is_not_in_the_way() -> None:
    disk, end = await written()
    for content in (b"", bytes(FILE_HEADER_SIZE)):
        left = disk.copy()
        left.put(index_name(end[0] + 1), content)
        async with open_log(left, segment_bytes=1) as log:
            assert await append(log, "a", b"rolls") == len(VALUES)


async def test_a_sealed_segment_is_never_cut() -> None:
    disk, end = await written()
    size = disk.files[log_name(1)].size()
    last_entry = size - (size - FILE_HEADER_SIZE) // 2
    for cut in (size - 1, last_entry, last_entry - 1, FILE_HEADER_SIZE, FILE_HEADER_SIZE - 1, 0):
        for with_index in (True, False):
            left = disk.copy()
            del left.files[log_name(1)].data[cut:]
            if not with_index:
                del left.files[index_name(1)]
            await refuses(left, "damaged|header", end)
    left = disk.copy()
    left.files[log_name(1)].data.extend(b"?")
    await refuses(left, "damaged", end)


async def test_after_a_clean_end_nothing_may_be_missing() -> None:
    disk, end = await written(1 << 20)
    for cut in (end[1] - 1, end[1] - ENTRY_HEADER_SIZE, FILE_HEADER_SIZE, 3):
        left = disk.copy()
        del left.files[log_name(0)].data[cut:]
        await refuses(left, "but had|header", end)


async def test_damage_names_file_position_and_virtual_topic() -> None:
    disk, _ = await written()
    disk.files[log_name(1)].data[-1] ^= 1
    del disk.files[index_name(1)]
    key = re.escape(topic_id("a").key)
    await refuses(disk, rf"000000000001\.log is damaged at position \d+, in virtual topic {key}: ")


async def test_a_crash_while_a_segment_is_begun() -> None:
    disk, end = await written()
    for content in (b"", b"QUAF", bytes(FILE_HEADER_SIZE)):
        for with_index in (True, False):
            left = disk.copy()
            left.put(log_name(end[0] + 1), content)
            if with_index:
                left.put(index_name(end[0] + 1), b"")
            await opens(left)
            await opens(left.copy())
            assert log_name(end[0] + 1) not in left.files


async def test_a_record_that_looks_like_an_entry_does_not_mislead() -> None:
    """A torn write whose value holds a copy of a log with entries that claim durability."""
    other, _ = await written(1 << 20)
    copied = bytes(other.files[log_name(0)].data)
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        await append(log, "a", copied * 3)
    del disk.files[log_name(0)].data[-1:]
    async with open_log(disk) as log:
        assert await values_of(log, "a") == [b"1"]


@pytest.mark.timeout(10)
async def test_a_torn_tail_full_of_entry_starts_is_searched_in_linear_time() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=1 << 30) as log:
        await append(log, "a", b"1")
        await append(log, "a", b"\x51\x45\x01\x00\x00\xff\xff\xff" * (1 << 17))
    del disk.files[log_name(0)].data[-1:]
    async with open_log(disk) as log:
        assert await values_of(log, "a") == [b"1"]


async def test_only_what_may_be_torn_is_read_again() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for _ in range(50):
            await append(log, "a", b"x" * 1_000)
    read: list[int] = []
    file = disk.files[log_name(0)]
    original = file.read

    def counted(position: int, size: int) -> bytes:
        read.append(position)
        return original(position, size)

    file.read = counted  # type: ignore[method-assign]
    async with open_log(disk) as log:
        assert log.topic(topic_id("a")).high_watermark == 50
    # Beside the header: only the last entry, which no other entry calls durable.
    assert min(position for position in read if position) > file.size() - 2_000


async def test_a_sealed_segment_cut_between_entries_before_an_empty_one() -> None:
    """No later entry tells; the index does."""
    disk, end = await written()
    sealed = disk.files[log_name(end[0] - 1)].data
    entries = (disk.files[index_name(end[0] - 1)].size() - FILE_HEADER_SIZE) // INDEX_ROW_SIZE
    del sealed[-((len(sealed) - FILE_HEADER_SIZE) // entries) :]
    for name in (log_name(end[0]), index_name(end[0])):
        del disk.files[name].data[FILE_HEADER_SIZE:]
    await refuses(disk, "it is cut short")


async def test_what_is_served_after_a_crash_is_durable_first() -> None:
    """kill -9 leaves in memory what was not synced; a power cut must not take it back later."""
    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.0)) as log:
        await append(log, "a", b"1")
        assert len(disk.files[log_name(0)].durable) == FILE_HEADER_SIZE
        async with open_log(disk) as again:
            file = disk.files[log_name(0)]
            assert again.topic(topic_id("a")).high_watermark == 1
            assert file.durable == bytes(file.data)


async def test_a_sealed_segment_and_its_index_are_durable() -> None:
    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.0), segment_bytes=200) as log:
        await append(log, "a", b"x" * 200)
        await append(log, "a", b"y")
        for name in (log_name(0), index_name(0)):
            assert disk.files[name].durable == bytes(disk.files[name].data)


async def test_a_block_of_the_files_past_in_the_torn_tail_is_cut_off() -> None:
    """A valid entry that lies where it was not written, behind all that was acknowledged."""
    disk, _ = await written(1 << 20)
    data = disk.files[log_name(0)].data
    first = bytes(data[FILE_HEADER_SIZE : FILE_HEADER_SIZE + len(data[FILE_HEADER_SIZE:]) // 12])
    data += first
    await opens(disk)
