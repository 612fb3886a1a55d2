"""Bounds of a partition, from what Redis answers about its stream."""

from __future__ import annotations

import pytest

from quafka_broker.sources.redis.bounds import PartitionBounds, StreamBounds
from quafka_broker.sources.redis.entry_ids import ZERO, EntryId, EntryIdMap

_MAP = EntryIdMap()


def at(ms: int, sequence: int = 0) -> int:
    return _MAP.offset_of(EntryId(ms, sequence))


def stream(
    first: int | None, last: int, length: int, added: int = -1, deleted: int = 0
) -> StreamBounds:
    return StreamBounds(
        None if first is None else EntryId(first, 0), EntryId(last, 0), length, added,
        EntryId(deleted, 0),
    )  # fmt: skip


def learned(*answers: StreamBounds) -> PartitionBounds:
    bounds = PartitionBounds(_MAP)
    for answer in answers:
        bounds.learn(answer)
    return bounds


def test_nothing_is_known_before_the_first_answer() -> None:
    bounds = PartitionBounds(_MAP)
    assert (bounds.log_start, bounds.high_watermark) == (-1, -1)
    assert bounds.records_from(0) is None


def test_answers_are_parsed() -> None:
    found = StreamBounds.parse([b"1-2", b"3-4", 5, 6, b"0-0"])
    assert found == StreamBounds(EntryId(1, 2), EntryId(3, 4), 5, 6, ZERO)
    assert StreamBounds.parse([b"", b"0-0", 0, -1, b""]).first is None
    wrong: list[list[bytes | int]] = [
        [],
        [b"1-2"],
        [1, b"3-4", 5, 6, b"0-0"],
        [b"x", b"3-4", 5, 6, b"0-0"],
    ]
    for bad in wrong:
        with pytest.raises(ValueError):
            StreamBounds.parse(bad)


def test_a_stream_without_entries_begins_and_ends_at_0() -> None:
    bounds = learned(StreamBounds(None, ZERO, 0, 0, ZERO))
    assert (bounds.log_start, bounds.high_watermark, bounds.records_from(0)) == (0, 0, 0)


def test_the_log_starts_at_0_until_something_is_removed() -> None:
    bounds = learned(stream(100, 300, 3, 3))
    assert (bounds.log_start, bounds.high_watermark) == (0, at(300) + 1)
    bounds.learn(stream(200, 300, 2, 3))
    assert (bounds.log_start, bounds.high_watermark) == (at(200), at(300) + 1)


def test_without_counters_the_log_starts_at_the_first_entry() -> None:
    bounds = learned(stream(100, 300, 3))
    assert bounds.log_start == at(100)
    assert bounds.records_from(at(100)) == 3
    assert bounds.records_from(at(200)) is None
    assert bounds.records_from(at(300) + 1) == 0


def test_a_deleted_last_entry_leaves_the_high_watermark() -> None:
    bounds = learned(stream(100, 300, 3, 3), stream(100, 300, 2, 3, deleted=300))
    assert bounds.high_watermark == at(300) + 1


def test_a_waiting_consumer_is_not_out_of_range_when_its_past_is_trimmed() -> None:
    bounds = learned(stream(100, 300, 3, 3))
    waiting = bounds.high_watermark
    bounds.learn(stream(400, 400, 1, 4))  # one XADD with MAXLEN 1
    assert bounds.log_start == waiting
    bounds.learn(stream(500, 500, 1, 5))
    assert bounds.log_start == at(400) + 1
    bounds.learn(stream(700, 700, 1, 7))  # 600 was never seen: nobody can wait after it
    assert bounds.log_start == at(700)


def test_an_empty_stream_that_had_entries_begins_at_its_end() -> None:
    bounds = learned(stream(None, 300, 0, 3))
    assert bounds.log_start == bounds.high_watermark == at(300) + 1


def test_lost_last_entries_move_no_consumer_unless_ids_fall() -> None:
    bounds = learned(stream(100, 300, 3, 3))
    end = bounds.high_watermark
    bounds.learn(stream(100, 200, 2, 2))  # a replica that lagged
    assert (bounds.high_watermark, bounds.end, bounds.truncations) == (end, at(200) + 1, 0)
    bounds.learn(stream(100, 400, 3, 3))
    assert (bounds.high_watermark, bounds.truncations) == (at(400) + 1, 0)
    assert bounds.log_start == 0
    bounds.learn(stream(100, 200, 2, 2))
    bounds.learn(stream(100, 250, 3, 3))  # its clock is behind
    assert (bounds.high_watermark, bounds.truncations) == (at(250) + 1, 1)


def test_a_stream_that_is_made_anew_continues() -> None:
    bounds = learned(stream(100, 300, 3, 3))
    end = bounds.high_watermark
    bounds.learn(StreamBounds(None, ZERO, 0, 0, ZERO))
    assert bounds.high_watermark == end
    assert bounds.log_start == end
    bounds.learn(stream(400, 500, 2, 2))
    assert (bounds.log_start, bounds.high_watermark) == (end, at(500) + 1)
    assert bounds.records_from(end) == 2


def test_lag_is_counted_where_the_counters_give_it() -> None:
    bounds = learned(stream(100, 300, 3, 3))
    middle = bounds.high_watermark
    bounds.learn(stream(100, 900, 9, 9))
    assert bounds.records_from(middle) == 6
    assert bounds.records_from(at(500)) is None
    assert bounds.records_at_most(at(500)) == 6
    bounds.count_read(middle, [at(400), at(500), at(600)])
    assert bounds.records_from(at(500)) == 5
    assert bounds.records_from(at(600) + 1) == 3
    bounds.count_read(at(600) + 1, [at(700)])
    assert bounds.records_from(at(700) + 1) == 2
    bounds.learn(stream(100, 900, 8, 9, deleted=800))
    assert bounds.records_from(at(500)) is None
    assert bounds.records_from(0) == 8


def test_marks_are_bounded() -> None:
    bounds = PartitionBounds(_MAP)
    for n in range(1, 2_000):
        bounds.learn(stream(1, n, n, n))
    assert len(bounds._marks) <= 65  # pyright: ignore[reportPrivateUsage]
    assert bounds.records_from(at(1_990) + 1) in (9, None)
