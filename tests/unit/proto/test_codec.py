"""The codec by itself: rules for null, limits, hostile bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from quafka_loop import clock
from quafka_proto.codec import decode, encode, encode_in_steps
from quafka_proto.errors import Malformed
from quafka_proto.message import Message
from quafka_proto.primitives import write_uvarint
from quafka_proto.schema.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from quafka_proto.schema.groups import SyncGroupRequest, SyncGroupRequestAssignment
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from quafka_proto.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quafka_proto.schema.quorum import DescribeQuorumResponse, QuorumListener, QuorumNode
from quafka_proto.schema.quotas import DescribeClientQuotasResponse, EntryData, ValueData
from quafka_proto.schema.sasl import SaslAuthenticateRequest
from quafka_proto.schema.share_fetch import ShareFetchableTopicResponse, ShareFetchResponse
from quafka_proto.schema.share_fetch import ShareFetchPartitionData as SharePart
from quafka_proto.schema.share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from quafka_proto.schema.topics import DeleteTopicsRequest


def encoded(message: Message, version: int) -> bytes:
    return b"".join(encode(message, version))


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def test_a_fetch_request_byte_by_byte() -> None:
    partition = FetchPartition(partition=2, fetch_offset=3, partition_max_bytes=9)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    data = bytes.fromhex(
        "ffffffff 000001f4 00000001 7fffffff 00"
        "00000001 000174 00000001 00000002 0000000000000003 00000009"
    )
    assert encoded(request, 4) == data
    assert decode(FetchRequest, 4, data) == request


def test_a_tagged_field_is_left_out_at_its_default_and_sent_otherwise() -> None:
    plain = encoded(FetchRequest(), 12)
    assert plain.endswith(b"\x01\x01\x01\x00")
    named = encoded(FetchRequest(cluster_id="c"), 12)
    assert named == plain[:-1] + b"\x01\x00\x02\x02c"
    assert decode(FetchRequest, 12, named).cluster_id == "c"


def test_unknown_tagged_fields_are_skipped_beside_known_ones() -> None:
    plain = encoded(FetchRequest(), 12)
    data = plain[:-1] + b"\x03\x00\x02\x02c" + b"\x63\x03abc" + uvarint(1 << 31) + b"\x00"
    assert decode(FetchRequest, 12, data) == FetchRequest(cluster_id="c")


@pytest.mark.parametrize("content", [b"\x02c\0", b"\x03c"])
def test_a_tagged_field_has_its_own_length(content: bytes) -> None:
    data = encoded(FetchRequest(), 12)[:-1] + b"\x01\x00" + uvarint(len(content)) + content
    with pytest.raises(Malformed):
        decode(FetchRequest, 12, data)


def test_a_field_of_another_version_is_ignored_and_defaults() -> None:
    request = FetchRequest(rack_id="here", session_id=5)
    assert decode(FetchRequest, 4, encoded(request, 4)) == FetchRequest()
    got = decode(FetchRequest, 7, encoded(request, 7))
    assert (got.rack_id, got.session_id) == ("", 5)


def test_defaults_of_absent_fields_are_not_shared() -> None:
    data = encoded(FetchRequest(), 4)
    first, second = decode(FetchRequest, 4, data), decode(FetchRequest, 4, data)
    first.forgotten_topics_data.append(ForgottenTopic())
    assert second.forgotten_topics_data == []


@pytest.mark.parametrize(("version", "data"), [(0, b"\xff\xff\xff\xff"), (1, b"\xff\xff\xff\xff")])
def test_null_only_where_the_version_has_it(version: int, data: bytes) -> None:
    if version == 0:
        with pytest.raises(Malformed, match="topics is null"):
            decode(MetadataRequest, version, data)
        with pytest.raises(ValueError, match="topics may not be null"):
            encode(MetadataRequest(topics=None), version)
    else:
        assert decode(MetadataRequest, version, data).topics is None
        assert encoded(MetadataRequest(topics=None), version) == data


def test_null_items() -> None:
    topic = MetadataRequestTopic(topic_id=b"i" * 16, name=None)
    assert decode(MetadataRequest, 12, encoded(MetadataRequest([topic]), 12)).topics == [topic]
    with pytest.raises(ValueError, match=r"MetadataRequestTopic.name may not be null"):
        encode(MetadataRequest([topic]), 9)
    with pytest.raises(Malformed, match="topic_names is null"):
        decode(DeleteTopicsRequest, 1, bytes.fromhex("00000001 ffff 00000000"))


def test_records_are_views_of_the_frame_and_may_be_null() -> None:
    parts = [PartitionProduceData(0, b"abc"), PartitionProduceData(1, None)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=parts)])
    for version in (3, 9, 12):
        data = encoded(request, version)
        got = decode(ProduceRequest, version, data).topic_data[0].partition_data
        assert isinstance(got[0].records, memoryview)
        assert got[0].records.obj is data
        assert bytes(got[0].records) == b"abc"
        assert got[1].records is None


@pytest.mark.parametrize("size", [0, 125, 126, 127, 128, 254, 16_381, 16_382, 16_383, 16_384])
def test_lengths_of_one_to_three_bytes(size: int) -> None:
    parts = [PartitionProduceData(7, bytes(size)), PartitionProduceData(8, b"next")]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=parts)])
    assert decode(ProduceRequest, 9, encoded(request, 9)) == request


def test_a_length_may_take_more_bytes_than_it_needs() -> None:
    """Also null: a length of zero."""
    head = bytes.fromhex("00 0001 00000000 02 02 74 02 00000007")
    for length, records in (("8000", None), ("8400", b"abc"), ("848000", b"abc")):
        data = head + bytes.fromhex(length) + (records or b"") + bytes(3)
        part = decode(ProduceRequest, 9, data).topic_data[0].partition_data[0]
        assert part == PartitionProduceData(7, records)


def test_a_list_of_buffers_is_one_value() -> None:
    def response(records: bytes | list[bytes | bytearray | memoryview]) -> bytes:
        part = PartitionData(records=records, diverging_epoch=EpochEndOffset(1, 2))
        return encoded(FetchResponse(responses=[FetchableTopicResponse(partitions=[part])]), 12)

    assert response([b"ab", bytearray(b"c"), memoryview(b"de")]) == response(b"abcde")
    assert response([]) == response(b"")


@pytest.mark.parametrize("version", [11, 12])
def test_strings_are_at_most_32767_bytes(version: int) -> None:
    longest = FetchRequest(rack_id="x" * 32767)
    assert decode(FetchRequest, version, encoded(longest, version)) == longest
    with pytest.raises(ValueError):
        encode(FetchRequest(rack_id="x" * 32768), version)


def test_a_longer_compact_string_is_malformed() -> None:
    data = encoded(FetchRequest(), 12)
    assert data.endswith(b"\x01\x00")
    forged = data[:-2] + uvarint(32768 + 1) + b"x" * 32768 + b"\x00"
    with pytest.raises(Malformed, match="rack_id"):
        decode(FetchRequest, 12, forged)


@pytest.mark.parametrize(
    "wrong", [FetchRequest(max_wait_ms=1 << 31), FetchRequest(isolation_level=-129)]
)
def test_a_number_that_does_not_fit_is_a_value_error(wrong: FetchRequest) -> None:
    with pytest.raises(ValueError, match="FetchRequest v4 cannot be encoded"):
        encode(wrong, 4)


@pytest.mark.parametrize("version", [-1, 19])
def test_a_version_that_is_not_described_is_a_value_error(version: int) -> None:
    with pytest.raises(ValueError, match="no version"):
        decode(FetchRequest, version, b"")
    with pytest.raises(ValueError, match="no version"):
        encode(FetchRequest(), version)


# --- the other kinds ------------------------------------------------------------------------


def test_bytes_are_copied_out_of_the_frame() -> None:
    request = SyncGroupRequest(
        "g", 1, "m", assignments=[SyncGroupRequestAssignment("m", b"\x00\xff")]
    )
    plain = "000167 00000001 00016d 00000001 00016d 00000002 00ff"
    compact = "0267 00000001 026d 00 00 00 02 026d 0300ff 00 00"
    for version, text in ((0, plain), (5, compact)):
        data = bytes.fromhex(text)
        assert encoded(request, version) == data
        got = decode(SyncGroupRequest, version, data)
        assert got == request
        assert type(got.assignments[0].assignment) is bytes


def test_bytes_may_not_be_null_here_nor_longer_than_the_frame() -> None:
    for text in ("ffffffff", "00000002 00", "7fffffff"):
        with pytest.raises(Malformed, match="auth_bytes"):
            decode(SaslAuthenticateRequest, 0, bytes.fromhex(text))
    with pytest.raises(ValueError, match=r"SaslAuthenticateRequest.auth_bytes may not be null"):
        encode(SaslAuthenticateRequest(None), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cursor", "text"), [(None, "ff"), (Cursor("t", 3), "01 0274 00000003 00")]
)
def test_a_struct_may_be_null(cursor: Cursor | None, text: str) -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("t")], 9, cursor)
    data = bytes.fromhex(f"02 0274 00 00000009 {text} 00")
    assert encoded(request, 0) == data
    assert decode(DescribeTopicPartitionsRequest, 0, data) == request


def test_any_negative_byte_is_a_null_struct_and_any_other_is_none() -> None:
    """As Kafka reads them; Kafka writes -1 and 1."""
    for byte, cursor in (("80", None), ("00 0274 00000003 00", Cursor("t", 3))):
        data = bytes.fromhex(f"01 00000009 {byte} 00")
        assert decode(DescribeTopicPartitionsRequest, 0, data).cursor == cursor


def test_float64_and_uint16() -> None:
    value = ValueData("k", -1.5)
    response = DescribeClientQuotasResponse(entries=[EntryData([], [value])])
    data = bytes.fromhex("00000000 0000 ffff 00000001 00000000 00000001 00016b bff8000000000000")
    assert encoded(response, 0) == data
    assert decode(DescribeClientQuotasResponse, 0, data) == response
    nodes = [QuorumNode(7, [QuorumListener("n", "h", 65535)])]
    quorum = DescribeQuorumResponse(nodes=nodes)
    data = bytes.fromhex("0000 00 01 02 00000007 02 026e 0268 ffff 00 00 00")
    assert encoded(quorum, 2) == data
    assert decode(DescribeQuorumResponse, 2, data) == quorum


def test_records_of_share_fetches_may_not_be_null() -> None:
    response = ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=[SharePart()])])
    data = encoded(response, 1)
    assert decode(ShareFetchResponse, 1, data) == response
    assert data.count(b"\x01\x01\x00") == 1  # no records, nothing acquired, no tagged fields
    with pytest.raises(Malformed, match="records is null"):
        decode(ShareFetchResponse, 1, data.replace(b"\x01\x01\x00", b"\x00\x01\x00"))


# --- hostile bytes --------------------------------------------------------------------------

_V7 = encoded(FetchRequest(), 7)
_V12 = encoded(FetchRequest(), 12)
_FORGOTTEN = _V7[:-4] + bytes.fromhex("00000001 000174")  # one forgotten topic, "t", then a count


def test_the_forged_frames_begin_as_real_ones_do() -> None:
    got = decode(FetchRequest, 7, _FORGOTTEN + bytes.fromhex("00000001 00000005"))
    assert got.forgotten_topics_data == [ForgottenTopic(topic="t", partitions=[5])]
    assert decode(FetchRequest, 12, _topics(2)).topics == [FetchTopic(), FetchTopic()]


def _topics(count: int) -> bytes:
    """Fetch v12 with that many empty topics, three bytes each."""
    return _V12[:-4] + uvarint(count + 1) + b"\x01\x01\x00" * count + b"\x01\x01\x00"


def _tags(count: int) -> bytes:
    return _V12[:-1] + uvarint(count) + b"\x05\x00" * count


def _numbers(count: int) -> bytes:
    return _FORGOTTEN + count.to_bytes(4, "big") + bytes(4 * count)


@pytest.mark.parametrize("count", [2, 1000, 0x7FFFFFFF])
def test_a_count_beyond_the_frame_allocates_nothing(count: int) -> None:
    frames = {
        7: [_V7[:-8] + count.to_bytes(4, "big"), _FORGOTTEN + count.to_bytes(4, "big") + bytes(4)],
        12: [_V12[:-4] + uvarint(count + 1) + b"\x01\x01"],
    }
    for version, forged in frames.items():
        for data in forged:
            tracemalloc.start()
            with pytest.raises(Malformed, match="is longer than its message"):
                decode(FetchRequest, version, data)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 200_000


@pytest.mark.parametrize(("version", "frame"), [(12, _topics), (12, _tags), (7, _numbers)])
def test_items_and_tags_are_limited_however_small(
    version: int, frame: Callable[[int], bytes]
) -> None:
    with pytest.raises(Malformed, match="too many"):
        decode(FetchRequest, version, frame(FetchRequest.item_limit + 1))
    decode(FetchRequest, version, frame(1000))


def test_the_limit_counts_the_whole_message() -> None:
    half = FetchRequest.item_limit // 2
    one = bytes.fromhex("000174") + half.to_bytes(4, "big") + bytes(4 * half)
    with pytest.raises(Malformed, match="too many"):
        decode(FetchRequest, 7, _V7[:-4] + bytes.fromhex("00000002") + one + one)


def test_a_large_hostile_frame_is_refused_at_once() -> None:
    frames = [(12, _topics(3_000_000)), (12, _tags(4_000_000)), (7, _numbers(2_000_000))]
    begun = clock.thread_time()
    for version, data in frames:
        with pytest.raises(Malformed):
            decode(FetchRequest, version, data)
    assert clock.thread_time() - begun < 0.5


@pytest.mark.parametrize(
    "length",
    [b"\x80", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\x0f"],
)
def test_a_bad_varint_is_malformed(length: bytes) -> None:
    with pytest.raises(Malformed):
        decode(MetadataRequest, 12, length)


@pytest.mark.parametrize("version", [1, 12])
def test_a_string_beyond_the_frame_is_malformed(version: int) -> None:
    data = encoded(MetadataRequest([MetadataRequestTopic(name="a" * 50)]), version)
    with pytest.raises(Malformed, match="name is longer than its message"):
        decode(MetadataRequest, version, data[:40])


def test_tags_of_a_message_that_knows_none_are_limited_too() -> None:
    plain = encoded(MetadataRequest(), 12)
    tags = b"\x05\x00" * (MetadataRequest.item_limit + 1)
    with pytest.raises(Malformed, match="too many tagged fields"):
        decode(MetadataRequest, 12, plain[:-1] + uvarint(len(tags) // 2) + tags)


def test_text_that_is_not_utf8_is_malformed() -> None:
    good = encoded(MetadataRequest([MetadataRequestTopic(name="ab")]), 1)
    with pytest.raises(Malformed):
        decode(MetadataRequest, 1, good.replace(b"ab", b"\xc3\x28"))


def test_an_offset_beyond_the_frame_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode(MetadataResponse, 1, b"abc", 10)


def test_a_long_list_two_levels_below_short_ones_is_encoded_in_steps() -> None:
    topic = DescribeShareGroupOffsetsResponseTopic(
        partitions=[DescribeShareGroupOffsetsResponsePartition(each) for each in range(1_000)]
    )
    group = DescribeShareGroupOffsetsResponseGroup(topics=[topic])
    answer = DescribeShareGroupOffsetsResponse(groups=[group])
    assert sum(1 for _ in encode_in_steps(answer, 1)) > 1_000
