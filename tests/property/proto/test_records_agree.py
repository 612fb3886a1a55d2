"""Any records, in every codec: kafka-python and aiokafka read ours, and we read theirs."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from quafka_proto.compression import Codec
from quafka_proto.record_check import check_records
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import read_header, rebase, split_batches
from tests.property.proto.test_records import RECORDS
from tests.support.suites import examples


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [r._replace(offset=base_offset + i) for i, r in enumerate(records)]


@pytest.mark.parametrize("reader", [KafkaPythonBatch, AioBatch])
@pytest.mark.parametrize("codec", list(Codec))
@examples(40)
@given(
    records=RECORDS,
    base_offset=st.integers(0, 1 << 62),
    transactional=st.booleans(),
    append_time=st.none() | st.integers(0, 1 << 42),
)
def test_clients_read_our_batches(
    reader: Any,
    codec: Codec,
    records: list[Record],
    base_offset: int,
    transactional: bool,
    append_time: int | None,
) -> None:
    data = build_batch(
        records, base_offset, codec=codec, transactional=transactional, append_time=append_time
    )
    batch = reader(bytes(data))
    assert batch.validate_crc()
    assert batch.is_transactional == transactional
    assert not batch.is_control_batch
    got = [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert got == list(iter_records(data))
    if append_time is None:
        assert got == numbered(records, base_offset)


@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AioBuilder])
@pytest.mark.parametrize("codec", list(Codec))
@examples(40)
@given(records=RECORDS, transactional=st.booleans())
def test_we_read_batches_of_clients(
    builder: Any, codec: Codec, records: list[Record], transactional: bool
) -> None:
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=77,
        producer_epoch=3,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for record in numbered(records):
        made.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    data = bytearray(made.build())
    assert list(iter_records(data)) == numbered(records)
    found = check_records(data)
    times = [record.timestamp for record in records]
    assert found == (min(times), max(times), any(record.key is None for record in records))
    header = read_header(data)
    assert header.max_timestamp == found.newest
    if header.codec == Codec.NONE:
        rebase(data, 0, 0)  # a client writes its own idea of the leader epoch
        ours = build_batch(
            records,
            transactional=transactional,
            producer_id=77,
            producer_epoch=3,
            base_sequence=11,
        )
        assert data == ours
    if not transactional:
        assert len(split_batches(data)) == 1
