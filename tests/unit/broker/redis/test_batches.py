"""Entries as records: fields, batches, gaps, limits."""

from __future__ import annotations

import json

import pytest

from quafka_broker.sources.redis.batches import BATCH_BYTES, Encoder, Entry, filler
from quafka_broker.sources.redis.entry_ids import EntryId, EntryIdMap, UnmappedIdError
from quafka_broker.sources.redis.fields import Fields, Format, read_fields, write_fields
from quafka_proto.record_codec import Record, iter_records
from quafka_proto.records import crc32c, read_header

_MS = 1_700_000_000_000
_MAP = EntryIdMap()


def _encode(entries: list[Entry], limit: int = 1 << 20, **options: object) -> list[Record]:
    encoded = Encoder(_MAP).encode(
        entries,
        0,
        limit,
        at_least_one=True,
        leader_epoch=3,
        **options,  # type: ignore[arg-type]
    )
    records: list[Record] = []
    for batch in encoded.batches:
        header = read_header(batch)
        assert header.crc == crc32c(batch[21:])
        assert header.leader_epoch == 3
        records += iter_records(batch)
    assert [record.offset for record in records] == encoded.offsets
    assert encoded.size == sum(map(len, encoded.batches))
    return records


def test_offsets_are_korvets() -> None:
    assert _MAP.offset_of(EntryId(1234567890123, 0)) == 1264197519485952
    assert _MAP.id_at(1264197519485953) == EntryId(1234567890123, 1)
    assert _MAP.offset_after(EntryId(5, 1023)) == _MAP.offset_of(EntryId(6, 0))


def test_ids_without_an_offset_are_refused_and_not_skipped() -> None:
    for entry in (EntryId(1, 1024), EntryId(1 << 53, 0), EntryId(1 << 63, 1 << 63)):
        with pytest.raises(UnmappedIdError):
            _MAP.offset_of(entry)
        assert _MAP.offset_after(entry) < 1 << 63
    # A read from the next millisecond's first offset must see what has no offset before it.
    assert _MAP.first_id_from(_MAP.offset_of(EntryId(2, 0))) == EntryId(1, 1024)
    assert _MAP.first_id_from(_MAP.offset_of(EntryId(2, 1))) == EntryId(2, 1)
    assert _MAP.first_id_from(0) == EntryId(0, 0)
    encoded = Encoder(_MAP).encode(
        [(b"1-1023", [b"value", b"x"]), (b"1-1024", [b"value", b"y"])],
        0,
        1 << 20, at_least_one=True, leader_epoch=0,
    )  # fmt: skip
    assert encoded.offsets == [2047]
    assert encoded.unmapped is not None


@pytest.mark.parametrize("text", [b"", b"1", b"1-", b"-1", b"1-2-3", b"a-b", b"1-2 ", b"+1-2"])
def test_other_texts_are_no_ids(text: bytes) -> None:
    with pytest.raises(ValueError):
        EntryId.parse(text)


@pytest.mark.parametrize(
    ("flat", "fields"),
    [
        ([b"value", b"v"], Fields(None, b"v", [], None)),
        ([b"key", b"k", b"value", b""], Fields(b"k", b"", [], None)),
        ([b"key", b"k"], Fields(b"k", None, [], None)),
        ([b"value", b"v", b"timestamp", b"12"], Fields(None, b"v", [], 12)),
        (
            [b"value", b"v", b"timestamp", b"-1"],
            Fields(None, b"v", [(b"timestamp", b"-1")], None),
        ),
        (
            [b"value", b"v", b"header.a", b"1", b"nullheader.b", b"", b"other", b"2"],
            Fields(None, b"v", [(b"a", b"1"), (b"b", None), (b"other", b"2")], None),
        ),
        ([b"a", b"1", b"b", "ü".encode()], Fields(None, '{"a":"1","b":"ü"}'.encode(), [], None)),
        ([b"a", b"1", b"a", b"2"], Fields(None, b'{"a":["1","2"]}', [], None)),
        ([b"a", b"\xff"], Fields(None, b'{"a":{"base64":"/w=="}}', [], None)),
        ([b"\xff", b"1"], Fields(None, b'{"\\\\xff":"1"}', [], None)),
        ([b"value", b"1", b"value", b"2"], Fields(None, b"1", [(b"value", b"2")], None)),
    ],
)
def test_fields_become_a_record(flat: list[bytes], fields: Fields) -> None:
    assert read_fields(flat, Format.AUTO) == fields


def test_other_formats_take_more_into_the_value() -> None:
    flat = [b"key", b"k", b"value", b"v", b"a", b"1"]
    as_json = read_fields(flat, Format.JSON)
    assert as_json.key == b"k"
    assert json.loads(as_json.value or b"") == {"value": "v", "a": "1"}
    raw = b"*6\r\n$3\r\nkey\r\n$1\r\nk\r\n$5\r\nvalue\r\n$1\r\nv\r\n$1\r\na\r\n$1\r\n1\r\n"
    assert read_fields(flat, Format.RAW) == Fields(None, raw, (), None)


def test_a_record_that_is_written_is_read_again() -> None:
    for record in (
        Record(0, 5, b"k", b"v", [("a", b"1"), ("a", None), ("", b"")]),
        Record(0, 5, None, None, []),
    ):
        key, value, headers, timestamp = read_fields(write_fields(record), Format.AUTO)
        assert (key, value, timestamp) == (record.key, record.value, record.timestamp)
        assert [(name.decode(), content) for name, content in headers] == record.headers
    assert write_fields(Record(0, 5, b"k", None, []), timestamp=False) == [b"key", b"k"]
    assert write_fields(Record(0, -1, None, None, []), timestamp=False) == [b"timestamp", b"0"]
    with pytest.raises(ValueError, match="1001 headers"):
        write_fields(Record(0, 0, None, None, [("a", b"")] * 1001))


def test_gaps_stay_within_a_batch_as_far_as_its_deltas_reach() -> None:
    ids = [f"{_MS}-0", f"{_MS}-7", f"{_MS + 60_000}-0", f"{_MS + 3_600_000}-0"]
    entries: list[Entry] = [(each.encode(), [b"value", b"v"]) for each in ids]
    encoded = Encoder(_MAP).encode(entries, 0, 1 << 20, at_least_one=True, leader_epoch=0)
    assert [read_header(batch).record_count for batch in encoded.batches] == [3, 1]
    records = _encode(entries)
    assert [record.timestamp for record in records] == [_MS, _MS, _MS + 60_000, _MS + 3_600_000]


def test_a_read_ends_at_its_limits() -> None:
    entries: list[Entry] = [(b"%d-0" % (_MS + i), [b"value", b"x" * 1000]) for i in range(2000)]
    encoded = Encoder(_MAP).encode(entries, 0, 100_000, at_least_one=True, leader_epoch=0)
    assert 98_000 < encoded.size <= 100_000
    whole = Encoder(_MAP).encode(entries, 0, 1 << 30, at_least_one=True, leader_epoch=0)
    assert len(whole.batches) > 2
    assert max(map(len, whole.batches)) < BATCH_BYTES + 2_000
    assert len(Encoder(_MAP).encode(entries, 0, 1 << 30, at_least_one=True, leader_epoch=0, most=2)
               .batches) == 2  # fmt: skip
    one = Encoder(_MAP).encode(entries, 0, 10, at_least_one=True, leader_epoch=0)
    assert len(one.offsets) == 1
    none = Encoder(_MAP).encode(entries, 0, 10, at_least_one=False, leader_epoch=0)
    assert not none.batches
    assert none.end == -1


def test_a_read_may_begin_anywhere() -> None:
    entries: list[Entry] = [
        (
            b"%d-%d" % (_MS + i // 3, i % 3),
            [b"key", b"%d" % i, b"value", b"v" * i, b"header.a", b"b"],
        )
        for i in range(300)
    ]
    whole = _encode(entries)
    for start in (1, 2, 150, 299):
        assert _encode(entries[start:]) == whole[start:]


def test_filler_batches_lead_over_a_gap() -> None:
    start, end = 10, 10 + (5 << 30)
    batches = filler(start, end, 2, 100)
    at = start
    for batch in batches:
        header = read_header(batch)
        assert header.base_offset == at
        assert header.record_count == 0
        assert header.leader_epoch == 2
        at = header.last_offset + 1
    assert at == end
    assert len(filler(0, 1 << 60, 0, 7)) == 7


def test_batches_of_consecutive_reads_are_adjacent() -> None:
    entries: list[Entry] = [
        (b"%d-0" % (_MS + i * 50), [b"value", b"v" * 900]) for i in range(2_000)
    ]
    start = _MAP.offset_of(EntryId(_MS, 0))
    at, number = start, 0
    while number < len(entries):
        found = Encoder(_MAP).encode(
            entries[number:], at, 700_000, at_least_one=True, leader_epoch=0
        )
        for batch in found.batches:
            header = read_header(batch)
            assert header.base_offset == at
            at = header.last_offset + 1
        assert at == found.end
        number += len(found.offsets)
