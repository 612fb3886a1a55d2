"""Requests of clients that deviate from the protocol are read as intended."""

from __future__ import annotations

import pytest

from quafka_gateway.edge.quirks import body_start
from quafka_proto.codec import decode, encode
from quafka_proto.headers import RequestHeader
from quafka_proto.schema.fetch import FetchRequest
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic

ALL = MetadataRequest(topics=None, allow_auto_topic_creation=True)


def read(version: int, body: bytes, head: bytes = b"head") -> MetadataRequest:
    header = RequestHeader(3, version, 1, "rdkafka")
    frame = head + body
    return decode(MetadataRequest, version, frame, body_start(header, frame, len(head)))


@pytest.mark.parametrize("version", range(9, 14))
def test_librdkafka_requests_all_topics_with_three_bytes_too_many(version: int) -> None:
    proper = b"".join(encode(ALL, version))
    assert proper[:1] == b"\x00"
    assert read(version, b"\x00\x00\x00" + proper) == ALL
    assert read(version, proper) == ALL


@pytest.mark.parametrize("version", range(9, 14))
def test_other_bodies_begin_after_the_header(version: int) -> None:
    some = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert read(version, b"".join(encode(some, version))) == some


def test_other_apis_and_versions_are_unchanged() -> None:
    frame = b"".join(encode(FetchRequest(), 12))
    assert body_start(RequestHeader(1, 12, 1, None), frame, 0) == 0
    assert body_start(RequestHeader(3, 8, 1, None), bytes(7), 0) == 0
