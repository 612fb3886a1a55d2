"""Requests that are not what the protocol says, sent by clients that many people use.

Kafka accepts them, as it does not look at what follows a request's body. Here such bytes are
refused, so each case is known by name.
"""

from __future__ import annotations

from quafka_proto.headers import RequestHeader

_METADATA = 3
_FIRST_COMPACT = 9
_LONG_NULL = bytes(4)
_DESCRIBE_ACLS = 29
_FIRST_TAGGED = 2


def body_start(header: RequestHeader, frame: bytes, at: int) -> int:
    """Where the request's body really begins, which should be at `at`.

    librdkafka (2.16 and before), asking for all topics in Metadata 9 and up, reserves four bytes
    for the number of topics and does not shorten them to the one that a compact null has: seven
    bytes of body where there are four (up to version 10, eight where there are five).
    """
    if header.api_key == _METADATA and header.api_version >= _FIRST_COMPACT:
        flags = 3 if header.api_version <= 10 else 2
        if len(frame) - at == len(_LONG_NULL) + flags + 1 and frame.startswith(_LONG_NULL, at):
            return at + len(_LONG_NULL) - 1
    return at


def to_body_end(header: RequestHeader, frame: bytes) -> bytes:
    """The request without what is behind its body, where nothing should be.

    segmentio/kafka-go (0.4), in DescribeAcls 2 and up, writes the filter as a struct of its own,
    whose tags the request's follow: a zero byte too many. A proper request with two zero bytes
    at its end would ask for the permission UNKNOWN, which Kafka refuses.
    """
    tagged_twice = header.api_key == _DESCRIBE_ACLS and header.api_version >= _FIRST_TAGGED
    return frame[:-1] if tagged_twice and frame.endswith(bytes(2)) else frame
