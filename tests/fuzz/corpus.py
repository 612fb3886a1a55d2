"""What the mutations begin with: small, valid inputs for each target."""

from __future__ import annotations

import random
import struct
from functools import cache

from quafka_mesh_ops.envelopes import encode_body, encode_request, encode_response
from quafka_mesh_ops.frames import PieceKind, Tag, encode_goaway, encode_number, encode_piece
from quafka_mesh_ops.ops.base import AnyOp, OpCode, WireStruct
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp, LeaseChange
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOps
from quafka_mesh_ops.ops.places import ObjectPlace, OpenPlaces, OpenPlacesResp
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.shares import (
    AcknowledgedBatch,
    AcknowledgeRecords,
    AcquiredPartition,
    AcquireRecords,
    AcquireRecordsResp,
    BatchRange,
    PartitionAcknowledgements,
    SharePlace,
)
from quafka_mesh_ops.ops.topics import (
    CreateTopic,
    DescribeTopics,
    DescribeTopicsResp,
    TopicDescription,
)
from quafka_proto.codec import encode
from quafka_proto.compression import Codec, compress
from quafka_proto.kafka_group_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_record,
)
from quafka_proto.kafka_log_format import ProducerEntry, encode_producer_entries
from quafka_proto.kafka_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_metadata_record,
)
from quafka_proto.message import Message, Request
from quafka_proto.message_sets import encode_message
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
)
from quafka_proto.schema.share_fetch import AcquiredRecords
from tests.fuzz.chain import chain_seeds
from tests.fuzz.group_facts import group_facts_seeds
from tests.fuzz.sasl import sasl_seeds
from tests.property.proto.messages import CASES, random_message

SMALL = 300
"""The size that a message of the corpus has at most, where one of a few is so small; bytes."""
NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", []),
    Record(1, NOW + 7, None, b"x" * 130, [("one", b"1"), ("one", None)]),
    Record(2, NOW - 9, b"", None, []),
]


_OTHERS = {"sasl": sasl_seeds, "chain": chain_seeds, "group_facts": group_facts_seeds}


@cache
def seeds(target: str) -> list[bytes]:
    """Valid inputs for a target."""
    if target in ("header", "request"):
        return [_request(*case) for case in CASES if issubclass(case[0], Request)]
    if target == "response":
        return [_response(*case) for case in CASES if not issubclass(case[0], Request)]
    if target in ("batches", "sealed_batch"):
        return _batches()
    if target == "message_set":
        return _plain_sets() + _wrapped_sets()
    if target == "sealed_message_set":  # one message each
        return _wrapped_sets() + [encode_message(RECORDS[1], magic) for magic in (0, 1)]
    if target == "fetched":
        return [bytes([magic]) + batch for magic in (0, 1) for batch in _batches()]
    if target.startswith("mesh_"):
        return _mesh_streams() if target == "mesh_stream" else _mesh_envelopes()
    if target.startswith("kafka_"):
        return _kafka(target)
    if target in _OTHERS:
        return _OTHERS[target]()
    return _compressed()


def _kafka(target: str) -> list[bytes]:
    if target == "kafka_metadata":
        return [encode_metadata_record(r, v) for r, v in _METADATA]
    if target == "kafka_groups":
        return [bytes([kind]) + encode_group_record(r, v) for kind, r, v in _GROUPS]
    if target == "kafka_indexes":
        aborted = struct.pack(">hqqqq", 0, 5, 11, 21, 22)
        producers = [
            ProducerEntry(5, 0, 9, 20, 3, NOW, 0, 11),
            ProducerEntry(6, 1, 0, 3, 0, 7, 0, -1),
        ]
        return [b"\0" + aborted * 3, b"\1" + encode_producer_entries(producers)]
    return _segments()


def _segments() -> list[bytes]:
    batches = [bytes(build_batch(RECORDS, 5 + 10 * codec, codec=codec)) for codec in Codec]
    transaction = build_batch(RECORDS, 60, transactional=True, producer_id=5, base_sequence=0)
    end = build_marker(TransactionMarker(MarkerType.ABORT, 3), 63, NOW, 5, 0)
    return [b"".join(batches), b"".join((transaction, end)), *_plain_sets(), *_wrapped_sets()]


def _body(message: type[Message], version: int) -> bytes:
    """The largest of a few messages that is small, or the smallest."""
    chance = random.Random(f"{message.__name__}{version}")
    flexible = version in message.flexible
    made = [
        b"".join(encode(random_message(message, version, flexible, chance), version))
        for _ in range(8)
    ]
    return max((data for data in made if len(data) <= SMALL), key=len, default=min(made, key=len))


def _request(message: type[Message], version: int) -> bytes:
    head = struct.pack(">hhih", message.api_key, version, 7, 3) + b"app"
    tags = b"\0" if version in message.flexible else b""
    return head + tags + _body(message, version)


def _response(message: type[Message], version: int) -> bytes:
    tags = b"\0" if version in message.flexible and message.api_key != 18 else b""
    head = struct.pack(">hhi", message.api_key, version, 7)
    return head + tags + _body(message, version)


def _batches() -> list[bytes]:
    made = [build_batch(RECORDS, 5, codec=codec) for codec in Codec]
    made.append(build_batch(RECORDS[:1], append_time=NOW))
    made.append(build_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0))
    made.append(build_marker(TransactionMarker(MarkerType.COMMIT, 3), 9, NOW, 5, 0))
    made.append(made[0] + made[4])
    return [bytes(batch) for batch in made]


def _plain_sets() -> list[bytes]:
    return [b"".join(encode_message(r, magic) for r in RECORDS) for magic in (0, 1)]


def _wrapped_sets() -> list[bytes]:
    return [
        encode_message(Record(2, NOW, None, compress(codec, plain), []), magic, codec)
        for magic, plain in enumerate(_plain_sets())
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    ]


_METADATA: list[tuple[MetadataRecord, int]] = [
    (TopicRecord("orders", bytes(range(16))), 0),
    *(
        (PartitionRecord(3, bytes(16), [1, 2], [1], [], [], 1, 0, 7, 9, [bytes(16)]), v)
        for v in range(3)
    ),
    *(
        (PartitionChangeRecord(3, bytes(16), [1], 2, [1, 2], directories=[bytes(16)]), v)
        for v in range(3)
    ),
    (BeginTransactionRecord("name"), 0),
    (EndTransactionRecord(), 0),
    (AbortTransactionRecord("reason"), 0),
    (ConfigRecord(2, "orders", "retention.ms", "9"), 0),
    (ConfigRecord(2, "orders", "retention.ms", None), 0),
    (RemoveTopicRecord(bytes(16)), 0),
    (FeatureLevelRecord("metadata.version", 25), 0),
]
_MEMBERS = [MemberMetadata("m-1", None, "app", "/127.0.0.1", 300, 45, b"sub", b"assigned")]
_GROUPS: list[tuple[int, GroupRecord, int]] = [
    *((0, OffsetCommitKey("readers", "orders", 3), version) for version in range(2)),
    (0, GroupMetadataKey("readers"), 2),
    (0, ConsumerGroupMetadataKey("readers"), 3),
    *((1, OffsetCommitValue(9, 3, "meta", NOW, -1), version) for version in range(5)),
    *((2, GroupMetadataValue("consumer", 4, "range", "m-1", NOW, _MEMBERS), v) for v in range(5)),
]
OPS: list[AnyOp] = [
    ProduceOps([ProduceOp("orders", 0, bytes(300)), ProduceOp("", 1, b"x", bytes(16))], acks=1),
    FetchOps([FetchOp("orders", n, 5, 1 << 20, bytes(16)) for n in range(3)], 500, 1),
    ListOffsetsOps([ListOffsetsOp("orders", 0, -1)]),
    DescribeTopics(["a", "b"], [bytes(16)], auto_create=True),
    CreateTopic("orders", 3),
    HoldLease(bytes(16), bytes(8), 7),
    OpenPlaces(),
    AcquireRecords("workers", "m-1", [SharePlace("", n, bytes(16)) for n in range(3)], 500, 1),
    AcknowledgeRecords(
        "workers",
        "m-1",
        [PartitionAcknowledgements("", 0, [AcknowledgedBatch(5, 7, b"\1\2\0")], bytes(16))],
    ),
]
ANSWERS: list[tuple[OpCode, WireStruct]] = [
    (OpCode.PRODUCE, ProduceOpsResp([ProduceOpResp(70_000, 3, error_message="no")])),
    (OpCode.FETCH, FetchOpsResp([FetchOpResp([bytes(250), b"yz"], 9), FetchOpResp([], -1, 3)])),
    (
        OpCode.FETCH,
        FetchOpsResp([FetchOpResp([], 9, places=[ObjectPlace("0-1", bytes(23) + b"\1")])]),
    ),
    (
        OpCode.ACQUIRE_RECORDS,
        AcquireRecordsResp(
            [AcquiredPartition([AcquiredRecords(5, 7, 1)], [BatchRange(4, 9, 300)])], 30_000
        ),
    ),
    (OpCode.OPEN_PLACES, OpenPlacesResp("/tmp/places", bytes(32))),
    (OpCode.DESCRIBE_TOPICS, DescribeTopicsResp("id", [TopicDescription("t", bytes(16), 3)])),
    (OpCode.HOLD_LEASE, HoldLeaseResp(bytes(8), 9, 2000, False, [LeaseChange("t", bytes(16), 1)])),
]


def _requests() -> list[bytes]:
    """Frames."""
    trace = f"00-{'ab' * 16}-{'cd' * 8}-01"
    return [
        b"".join(encode_request(70_000, op.code, 1, trace, "", 500, encode_body(op))) for op in OPS
    ]


def _mesh_streams() -> list[bytes]:
    answers = [b"".join(encode_response(5, 0, encode_body(answer))) for _, answer in ANSWERS]
    frames = [*_requests(), *answers, encode_number(Tag.PING, 1 << 40), encode_goaway()]
    frames += [encode_number(Tag.SHARD, 3), _in_pieces(frames[0])]
    return [bytes([size]) + frame for size in (6, 255) for frame in [*frames, b"".join(frames)]]


def _in_pieces(frame: bytes) -> bytes:
    parts = [(PieceKind.LAST, frame)]
    parts += [(PieceKind.MORE, bytes(4096)), (PieceKind.ABANDONED, b"")]
    return b"".join(b"".join(encode_piece(9, piece, [data])) for piece, data in parts)


def _mesh_envelopes() -> list[bytes]:
    made = [b"\xff" + _payload(frame) for frame in _requests()]
    for code, answer in ANSWERS:
        frame = b"".join(encode_response(5, 0, encode_body(answer)))
        made.append(bytes([code]) + _payload(frame))
    return made


def _payload(frame: bytes) -> bytes:
    """What follows the tag and the length, which is a varint."""
    at = 1
    while frame[at] & 0x80:
        at += 1
    return frame[at + 1 :]


def _compressed() -> list[bytes]:
    text = b"".join(b"%d bottles of beer " % n for n in range(20))
    made: list[bytes] = []
    for content in (b"", b"x", text, bytes(2000)):
        made += [bytes([codec]) + compress(codec, content) for codec in Codec]
        made.append(b"\x0b" + compress(Codec.LZ4, content))
    return made
