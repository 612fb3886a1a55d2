"""Requests whose bytes are few for what they cost: batches that unpack, and large produces."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

from quafka_proto.compression import Codec, compress
from quafka_proto.primitives import write_varint
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import assemble, read_header
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.hostile.arena import Arena
from tests.hostile.attacks_records import batch, bomb, send
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import VERSION

_SECONDS = 12.0
_SENT_SECONDS = 1.0
_RECORDS, _BATCHES = 1_000_000, 64
_BOMB = 60 << 20
_MB = 1_000_000


def empty_records(count: int) -> bytes:
    """A zstd batch of records without key and value, some 0.8 bytes each."""
    body = bytearray()
    for number in range(count):
        record = bytearray(2)  # attributes, and the timestamp of the batch
        write_varint(record, number)
        record += b"\1\1\0"  # no key, no value, no headers
        write_varint(body, len(record))
        body += record
    header = read_header(batch(0))._replace(
        attributes=Codec.ZSTD, last_offset_delta=count - 1, record_count=count
    )
    return bytes(assemble(header, compress(Codec.ZSTD, body)))


def _empties(connections: int) -> None:
    many = "connections send" if connections > 1 else "connection sends"

    @attack(f"{connections} {many} 64 batches of a million empty records each", "33")
    def empties(arena: Arena) -> None:
        """In one request each. Calls of others that come later are answered earlier."""
        made = empty_records(_RECORDS)
        topics = [arena.topic(_BATCHES) for _ in range(connections)]

        def produce(topic: str) -> None:
            with arena.connect(200) as client:
                client.call(_produce(topic, made, _BATCHES), ProduceResponse, VERSION["produce"])

        with ThreadPoolExecutor(connections) as threads:
            producing = [threads.submit(produce, topic) for topic in topics]
            time.sleep(_SENT_SECONDS)
            arena.others_are_served()
            ended = [each for each in producing if each.done()]
            for each in producing:
                each.result()
        assert not ended, f"{len(ended)} of the requests ended before calls of another org"


for each in (1, 2, 4):
    _empties(each)


def _produce(topic: str, made: bytes, partitions: int) -> ProduceRequest:
    """The same batch for each partition."""
    data = [PartitionProduceData(index=number, records=made) for number in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


@attack("a client of Kafka 0.9 fetches batches of 58 KB that unpack to 60 MB", "33")
def unpacked(arena: Arena) -> None:
    """They are converted for it."""
    topic, made = arena.topic(), bomb(Codec.GZIP, _BOMB)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=_MB)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[part])]
    )
    with arena.connect() as client:
        for _ in range(8):
            assert send(client, topic, made) == 0
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            client.call(request, FetchResponse, 2)


def _large(megabytes: int) -> None:
    @attack(f"produces have {megabytes} MB each", "33")
    def produces(arena: Arena) -> None:
        topic = arena.topic(megabytes)
        record = Record(0, 1_000, None, random.Random(7).randbytes(_MB - 100), [])
        request = _produce(topic, bytes(build_batch([record])), megabytes)
        with arena.connect() as client:
            until = time.monotonic() + _SECONDS
            while time.monotonic() < until:
                answer = client.call(request, ProduceResponse, VERSION["produce"])
                errors = {each.error_code for each in answer.responses[0].partition_responses}
                assert errors == {0}, errors


for each in (47, 90):
    _large(each)
