"""Requests that are not what the protocol says, sent by clients that many people use.

What follows a request's body is not looked at, by Kafka neither; what is sent before it is.
"""

from __future__ import annotations

from quafka_proto.headers import RequestHeader

_METADATA = 3
_FIRST_COMPACT = 9
_LONG_NULL = bytes(4)


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
