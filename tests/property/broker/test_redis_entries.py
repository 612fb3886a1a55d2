"""Property tests: entry ids, fields and batches of Redis Streams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.sources.redis.batch_builder import varint
from quafka_broker.sources.redis.batches import Encoder
from quafka_broker.sources.redis.entry_ids import EntryId, EntryIdMap, UnmappedIdError
from quafka_broker.sources.redis.fields import Format, read_fields, read_plain, write_fields
from quafka_proto.primitives import write_varint
from quafka_proto.record_codec import Record, iter_records

_BITS = st.integers(10, 20)
_U64 = st.integers(0, (1 << 64) - 1)
_FIELD = st.sampled_from([b"key", b"value", b"timestamp", b"header.a", b"nullheader.b"])
_FLAT = st.lists(st.tuples(_FIELD | st.binary(max_size=9), st.binary(max_size=20)), min_size=1).map(
    lambda pairs: [part for pair in pairs for part in pair]
)
_RECORD = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, 1 << 50),
    key=st.none() | st.binary(max_size=30),
    value=st.none() | st.binary(max_size=30),
    headers=st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=4),
)


@given(_BITS, _U64, _U64)
def test_offsets_and_ids_are_one_another(bits: int, ms: int, sequence: int) -> None:
    mapping, entry = EntryIdMap(bits), EntryId(ms, sequence)
    assert EntryId.parse(entry.text) == entry
    try:
        offset = mapping.offset_of(entry)
    except UnmappedIdError:
        assert sequence >= 1 << bits or ms >= 1 << (63 - bits)
    else:
        assert mapping.id_at(offset) == entry
        assert 0 <= offset < mapping.offset_after(entry) <= (1 << 63) - 1 or offset == (1 << 63) - 1


@given(_BITS, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_order_is_kept(bits: int, a: int, b: int) -> None:
    mapping = EntryIdMap(bits)
    assert (a < b) == (mapping.id_at(a) < mapping.id_at(b))
    assert mapping.first_id_from(a) <= mapping.id_at(a)


@given(_RECORD)
def test_what_is_written_is_read(record: Record) -> None:
    key, value, headers, timestamp = read_fields(write_fields(record), Format.AUTO)
    assert (key, value, timestamp) == (record.key, record.value, record.timestamp)
    assert [(name.decode(), content) for name, content in headers] == record.headers


@given(_FLAT)
def test_what_is_read_sooner_is_the_same(flat: list[bytes]) -> None:
    plain = read_plain(flat)
    assert plain is None or tuple(read_fields(flat, Format.AUTO)) == (
        plain[0],
        plain[1],
        [],
        plain[3],
    )


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 63).map(lambda bits: 1 << bits))
def test_varints_from_tables(value: int) -> None:
    for each in (value, value - 1):
        if -(1 << 63) <= each < 1 << 63:
            expected = bytearray()
            write_varint(expected, each)
            assert varint(each) == expected


@given(
    st.lists(st.tuples(st.integers(0, 1 << 45), _FLAT), min_size=1, max_size=20),
    st.sampled_from(Format),
    st.integers(0, 19),
    st.integers(1, 2_000),
)
def test_every_entry_is_one_record_wherever_reads_begin(
    found: list[tuple[int, list[bytes]]],
    form: Format,
    skipped: int,
    limit: int,
) -> None:
    entries = [(EntryIdMap().id_at(n).text, flat) for n, (_, flat) in enumerate(found)]
    gaps = sorted({offset for offset, _ in found})
    entries = [
        (EntryIdMap().id_at(offset).text, flat)
        for offset, (_, flat) in zip(gaps, entries, strict=False)
    ]
    encoder = Encoder(EntryIdMap(), form)
    whole = encoder.encode(entries, 0, 1 << 30, at_least_one=True, leader_epoch=0)
    records = [record for batch in whole.batches for record in iter_records(batch)]
    assert [record.offset for record in records] == gaps
    part = encoder.encode(entries[skipped:], 0, limit, at_least_one=True, leader_epoch=0)
    partly = [record for batch in part.batches for record in iter_records(batch)]
    assert partly == records[skipped : skipped + len(partly)]
    assert bool(partly) == (skipped < len(entries))
    assert part.size <= limit or len(partly) == 1
