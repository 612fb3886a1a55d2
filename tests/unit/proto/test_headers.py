"""Request and response frames, written out byte by byte."""

from __future__ import annotations

import pytest

from quafka_proto.codec import decode
from quafka_proto.errors import Malformed, UnsupportedVersion
from quafka_proto.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from quafka_proto.schema.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse

V1 = bytes.fromhex("0003 0001 00000007") + b"\x00\x02me"
V2 = bytes.fromhex("0003 0009 00000007") + b"\x00\x02me"


def test_request_header_v1() -> None:
    header = RequestHeader(api_key=3, api_version=1, correlation_id=7, client_id="me")
    assert decode_request_header(V1 + b"body") == (header, len(V1))


def test_request_header_v2_has_tags_and_a_plain_client_id() -> None:
    header = RequestHeader(3, 9, 7, "me")
    assert decode_request_header(V2 + b"\0body") == (header, len(V2) + 1)
    tagged = V2 + b"\x02\x05\x01x\x63\x00"
    assert decode_request_header(tagged + b"body") == (header, len(tagged))


def test_client_id_may_be_null() -> None:
    data = bytes.fromhex("0003 0001 00000007 ffff")
    assert decode_request_header(data)[0].client_id is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        V1[:9],
        V1[:-1],
        V2,  # no tag count
        V2 + b"\x01\x05\x09x",  # a tag longer than the frame
        V2 + b"\x80",  # a varint cut short
        V2 + b"\xff\xff\xff\xff\x7f",  # above 32 bits
        V2 + b"\xff\xff\xff\xff\x0f" + b"\x00\x00" * 10_000,  # four thousand million tags
        bytes.fromhex("0003 0001 00000007 0002 c328"),  # not UTF-8
    ],
)
def test_a_bad_header_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_request_header(data)


def test_header_tags_are_limited() -> None:
    decode_request_header(V2 + bytes([100]) + b"\x05\x00" * 100)
    with pytest.raises(Malformed, match="too many tagged fields"):
        decode_request_header(V2 + bytes([101]) + b"\x05\x00" * 101)


@pytest.mark.parametrize(("key", "version"), [(3, 14), (3, -1), (1, 19), (999, 0), (-1, 0)])
def test_an_unknown_api_or_version_says_which(key: int, version: int) -> None:
    start = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request_header(start + bytes.fromhex("0000002a ffff"))
    error = caught.value
    assert (error.api_key, error.api_version, error.correlation_id) == (key, version, 42)
    assert not isinstance(error, Malformed)


@pytest.mark.parametrize("version", [1, 8, 9, 13])
@pytest.mark.parametrize("client_id", ["ich", None, ""])
def test_a_request_frame_comes_back(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=None)
    frame = b"".join(encode_request(5, client_id, request, version))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, at = decode_request_header(frame[4:])
    assert header == RequestHeader(3, version, 5, client_id)
    assert decode(MetadataRequest, version, frame[4:], at) == request


@pytest.mark.parametrize("version", [1, 8, 9, 13])
def test_a_response_frame_comes_back(version: int) -> None:
    response = MetadataResponse(controller_id=3)
    frame = b"".join(encode_response(5, response, version))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, at = decode_response_header(MetadataResponse, version, frame[4:])
    assert (correlation_id, at) == (5, 5 if version >= 9 else 4)
    assert decode(MetadataResponse, version, frame[4:], at) == response


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\x07", b"\0\0\0\x07\x01\x00\x05"])
def test_a_bad_response_header_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_response_header(MetadataResponse, 9, data)


def test_api_versions_answers_have_a_v0_header_and_no_tagged_fields() -> None:
    """librdkafka before 2.1 cannot skip tagged fields here."""
    response = ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)])
    frame = b"".join(encode_response(1, response, 3))
    assert frame == bytes.fromhex("00000013 00000001 0000 02 0012 0000 0004 00 00000000 00")
    assert decode_response_header(ApiVersionsResponse, 3, frame[4:]) == (1, 4)


def test_api_versions_request_of_a_java_client() -> None:
    data = (
        bytes.fromhex("0012 0004 00000000")
        + b"\x00\x03abc\x00"
        + b"\x12apache-kafka-java\x064.3.0\x00"
    )
    header, at = decode_request_header(data)
    request = decode(ApiVersionsRequest, header.api_version, data, at)
    assert request == ApiVersionsRequest("apache-kafka-java", "4.3.0")


def test_record_bytes_are_passed_on_by_reference() -> None:
    first, second = memoryview(bytes(1 << 20)), bytearray(b"x" * 100)
    data = PartitionData(partition_index=1, records=[first, second])
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic_id=b"i" * 16, partitions=[data])]
    )
    buffers = encode_response(9, response, 16)
    assert any(buffer is first for buffer in buffers)
    assert any(buffer is second for buffer in buffers)
    assert len(buffers) == 4
    size = int.from_bytes(bytes(buffers[0][:4]), "big")
    assert size == sum(map(len, buffers)) - 4


def test_undescribed_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="FetchRequest has no version 99"):
        encode_request(1, None, FetchRequest(), 99)
