"""Record batches that lie, swell or come by the hundred thousand."""

from __future__ import annotations

import struct
from collections.abc import Callable

import google_crc32c

from quafka_proto.compression import Codec, compress
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Buffer
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import DELETE_HORIZON
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import fetch, produce, values
from tests.support.raw_client import RawClient

_ATTRIBUTES, _LAST_DELTA, _COUNT, _CRC, _BODY = 21, 23, 57, 17, 61
REFUSED = {
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


def batch(*sizes: int) -> bytearray:
    """A batch of records of these sizes."""
    return build_batch([Record(i, 1_000, None, bytes(n), []) for i, n in enumerate(sizes)])


def sealed(changed: bytearray) -> bytearray:
    """The batch with the CRC that its bytes have."""
    changed[_CRC : _CRC + 4] = struct.pack(">I", google_crc32c.value(bytes(changed[_CRC + 4 :])))
    return changed


def send(client: RawClient, topic: str, *batches: bytes | bytearray, version: int = 9) -> int:
    """Produce these bytes as they are to partition 0; the error."""
    data = PartitionProduceData(index=0, records=b"".join(batches))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = client.call(request, ProduceResponse, version)
    return answer.responses[0].partition_responses[0].error_code


def _claims(count: int) -> bytearray:
    """No record at all, and a header that claims so many."""
    made = batch(1)[:_BODY]
    made[8:12] = struct.pack(">i", len(made) - 12)
    made[_LAST_DELTA : _LAST_DELTA + 4] = struct.pack(">i", count - 1)
    made[_COUNT:_BODY] = struct.pack(">i", count)
    return sealed(made)


def _with(at: int, form: str, value: int) -> bytearray:
    made = batch(10, 10)
    struct.pack_into(form, made, at, value)
    return sealed(made)


LIES: dict[str, Callable[[], bytearray]] = {
    "61 bytes claim 2^31-1 records": lambda: _claims((1 << 31) - 1),
    "61 bytes claim one record": lambda: _claims(1),
    "the last offset is above the count": lambda: _with(_LAST_DELTA, ">i", 1_000_000),
    "the last offset is negative": lambda: _with(_LAST_DELTA, ">i", -5),
    "the count is above the records": lambda: _with(_COUNT, ">i", 3),
    "the count is below the records": lambda: _with(_COUNT, ">i", 1),
    "the count is negative": lambda: _with(_COUNT, ">i", -1),
    "a record is longer than the batch": lambda: _with(_BODY, ">B", 0x7E),
    "a record's offset is not the next": lambda: _with(_BODY + 3, ">B", 8),
    "a key is longer than its record": lambda: _with(_BODY + 4, ">B", 0x7E),
    "the codec is unknown": lambda: _with(21, ">h", 7),
    "the bytes are not what the codec says": lambda: _with(21, ">h", Codec.ZSTD),
}


@attack("batches lie about their records", "6", part_of_tests=True)
def lies(arena: Arena) -> None:
    """Each is refused, and the partition goes on as if it had not been sent."""
    topic = arena.topic()
    with arena.connect(20) as client:
        for number, (name, lie) in enumerate(LIES.items()):
            error = send(client, topic, lie())
            assert error in REFUSED, f"{name}: error {error}"
            assert produce(client, topic, b"%d" % number) == number, f"{name} moved the end"
            found = values(fetch(client, topic, number, max_wait_ms=2_000))
            assert found == [b"%d" % number], f"{name}: {found}"


def bomb(codec: Codec, size: int) -> bytearray:
    """One record of zeros, compressed."""
    plain = batch(size)
    small = compress(codec, bytes(plain[_BODY:]))
    made = plain[:_BODY] + small
    made[8:12] = struct.pack(">i", len(made) - 12)
    made[22] |= codec
    return sealed(made)


@attack("batches of a few KB decompress to 256 MB", "6")
def bombs(arena: Arena) -> None:
    """Refused or stored, and never decompressed beyond the bound."""
    topic = arena.topic()
    with arena.connect() as client:
        for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4):
            made = bomb(codec, 256 << 20)
            if len(made) > 1_000_000:
                continue
            assert send(client, topic, made) in REFUSED | {0}
        _old_fetch(client, topic)


def _old_fetch(client: RawClient, topic: str) -> None:
    """As clients of Kafka 0.9, for whom batches are converted."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[part])]
    )
    client.call(request, FetchResponse, 2)


@attack("forty batches decompress to 60 MB each", "6")
def many_bombs(arena: Arena) -> None:
    """Within the bound, each; time and memory must not add up for others."""
    topic = arena.topic()
    made = bomb(Codec.ZSTD, 60 << 20)
    with arena.connect() as client:
        for _ in range(40):
            assert send(client, topic, made) in REFUSED | {0}


@attack("a producer sets the delete horizon, as only a broker may", "33", part_of_tests=True)
def horizon(arena: Arena) -> None:
    """Compaction would take the batch's first timestamp as the time when its tombstones may go."""
    topic = arena.topic()
    with arena.connect() as client:
        error = send(client, topic, _with(_ATTRIBUTES, ">h", DELETE_HORIZON))
        if not error:
            stored = fetch(client, topic, 0, max_wait_ms=2_000).records
            assert isinstance(stored, Buffer), "records are one buffer"
            assert not stored[_ATTRIBUTES + 1] & DELETE_HORIZON
        assert error in REFUSED | {0}


@attack("one produce request has half a million batches", "7", part_of_tests=True)
def tiny_batches(arena: Arena) -> None:
    """Kafka takes one batch per partition from version 3 on."""
    topic = arena.topic()
    tiny = batch(0)
    with arena.connect() as client:
        assert send(client, topic, bytes(tiny) * (34_000_000 // len(tiny))) in REFUSED
        assert send(client, topic, tiny, tiny) in REFUSED
        assert produce(client, topic, b"first") == 0


@attack("a fetch with a min_bytes of 9 MB is over 140,000 batches", "7")
def fetch_tiny_batches(arena: Arena) -> None:
    width = 1_000
    topic = arena.topic(partitions=width)
    tiny = bytes(batch(0))
    parts = [PartitionProduceData(index=number, records=tiny) for number in range(width)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )
    with arena.connect() as client:
        for _ in range(140):
            answer = client.call(request, ProduceResponse, 9)
            errors = {one.error_code for one in answer.responses[0].partition_responses}
            assert errors == {0}
        wanted = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
            for number in range(width)
        ]
        reading = FetchRequest(
            max_wait_ms=500,
            min_bytes=9 << 20,
            max_bytes=50 << 20,
            topics=[FetchTopic(topic=topic, partitions=wanted)],
        )
        got = client.call(reading, FetchResponse, 12)
        assert got.error_code == 0
        errors = {one.error_code for one in got.responses[0].partitions}
        assert errors == {0}, errors
        assert sum(len(values(one)) for one in got.responses[0].partitions) > 0


@attack("thirty clients fetch 50 MB each and read it by drops")
def slow_readers(arena: Arena) -> None:
    import contextlib
    import socket
    import time

    from tests.hostile.arena import frame

    topic = arena.topic()
    with arena.connect() as client:
        for _ in range(50):
            produce(client, topic, bytes(1_000_000))
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
    request = frame(
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        ),
        12,
    )
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(arena.raw()) for _ in range(30)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.sendall(request)
        for _ in range(40):
            for one in sockets:
                one.recv(1_000)
            time.sleep(0.05)
