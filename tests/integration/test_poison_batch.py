"""A batch that rots on the disk: its partition says so, and whoever wants seeks past it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchResponse
from tests.support.cluster import Cluster
from tests.support.fetch_calls import LONG, V, create, get, one, part, put, request_of
from tests.support.kafka_calls import values
from tests.support.raw_client import RawClient

POISON = b"this record is about to rot"


def rot(data: Path) -> None:
    """Change one byte of the poisonous record, in the log of a broker that runs."""
    for path in (data / "wal").glob("*.log"):
        at = path.read_bytes().find(POISON)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"T")
            return
    raise AssertionError("the record is not in the log")


@pytest.mark.long
@pytest.mark.local_log
def test_a_poison_batch_is_an_error_that_one_can_seek_past(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        create(client, "t")
        for value in (b"before", POISON, b"after"):
            put(client, "t", value)
        put(client, "t", b"good", partition=1)
        begin = request_of("t", part(0, 1), part(1, 1), session=(0, 0))
        session = client.call(begin, FetchResponse, V).session_id
        rot(cluster.data)

        assert values(one(client, "t", part(0, 0))) == [b"before"]
        began = time.monotonic()
        request = request_of("t", part(0, 1), part(1), wait=LONG, min_bytes=1 << 20)
        bad, good = get(client, request)
        assert time.monotonic() - began < 5, "it delays nobody"
        assert bad.error_code == ErrorCode.CORRUPT_MESSAGE
        assert (bad.high_watermark, bad.log_start_offset, values(bad)) == (3, 0, [])
        assert (good.error_code, values(good)) == (0, [b"good"])
        assert values(one(client, "t", part(0, 2))) == [b"after"]

        for epoch in (1, 2):
            (told,) = get(client, request_of("t", session=(session, epoch)))
            assert told.error_code == ErrorCode.CORRUPT_MESSAGE
        (past,) = get(client, request_of("t", part(0, 2), session=(session, 3)))
        assert (past.error_code, values(past)) == (0, [b"after"])
        assert get(client, request_of("t", part(0, 3), session=(session, 4))) == []


@pytest.mark.local_log
def test_librdkafka_is_told_and_goes_on_behind_it(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        create(client, "t")
        for value in (b"before", POISON, b"after"):
            put(client, "t", value)
    rot(cluster.data)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
        }
    )
    seen: list[bytes | None] = []
    errors: set[int] = set()
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        give_up = time.monotonic() + 30
        while b"after" not in seen and time.monotonic() < give_up:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                seen.append(message.value())
            else:
                errors.add(error.code())
                consumer.seek(TopicPartition("t", 0, 2))
    finally:
        consumer.close()
    assert seen == [b"before", b"after"]
    assert errors == {KafkaError.INVALID_MSG}
