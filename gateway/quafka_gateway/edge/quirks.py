"""Corrections for widely used clients whose requests deviate from the protocol.

Bytes after a request's body are ignored, as in Kafka. Extra bytes before the body are handled here.
"""

from __future__ import annotations

from quafka_proto.headers import RequestHeader

_METADATA = 3
_FIRST_COMPACT = 9
_LONG_NULL = bytes(4)


def body_start(header: RequestHeader, frame: bytes, at: int) -> int:
    """Return where the request's body begins. By the protocol this is `at`.

    For all topics, librdkafka up to 2.16 writes the null array of Metadata 9 and up with four bytes
    instead of the one byte of a compact null: the body has seven bytes instead of four (up to
    version 10, eight instead of five).
    """
    if header.api_key == _METADATA and header.api_version >= _FIRST_COMPACT:
        flags = 3 if header.api_version <= 10 else 2
        if len(frame) - at == len(_LONG_NULL) + flags + 1 and frame.startswith(_LONG_NULL, at):
            return at + len(_LONG_NULL) - 1
    return at
