"""Idempotent producers that crowd out each other."""

from __future__ import annotations

import contextlib

from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.hostile.arena import Arena
from tests.hostile.attacks_records import send
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import fetch, values
from tests.support.raw_client import RawClient

_WIDTH = 10_000
RETRIED = {
    0,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}


def _producer(client: RawClient) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = client.call(request, InitProducerIdResponse, 1)
    assert answer.error_code == 0
    return answer.producer_id


def _first(producer: int) -> bytearray:
    record = Record(0, 1_000, None, b"once", [])
    return build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=0)


@attack(
    "110,000 pairs of partition and producer come, then a producer tries again", "10",
    growth_mib=256, why="each pair is remembered until it expires, some hundred bytes",
)  # fmt: skip
def evicted(arena: Arena) -> None:
    """Whatever was forgotten, its record is not stored twice."""
    topic, wide = arena.topic(), arena.topic(partitions=_WIDTH)
    with arena.connect() as client:
        mine = _first(_producer(client))
        assert send(client, topic, mine) == 0
    for _ in range(11):
        with arena.connect() as client, contextlib.suppress(ConnectionError):
            other = bytes(_first(_producer(client)))
            parts = [PartitionProduceData(index=n, records=other) for n in range(_WIDTH)]
            request = ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=wide, partition_data=parts)],
            )
            client.call(request, ProduceResponse, 9)
    with arena.connect() as client:
        error = send(client, topic, mine)
        assert error in RETRIED, error
        assert values(fetch(client, topic, 0)) == [b"once"], "stored twice"
