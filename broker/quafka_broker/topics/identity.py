"""New identities for topics and clusters, which the registry gets from its caller."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable

from quafka_broker.topics.topic import TopicIdentity
from quafka_loop import clock

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


Random = Callable[[int], bytes]
"""Returns this many random bytes; by default `os.urandom`, looked up when it is called."""


def new_topic_identity(now_ms: int | None = None, random: Random | None = None) -> TopicIdentity:
    """An identity for a topic that is created at `now_ms`; None: now."""
    random = random or os.urandom
    if now_ms is None:
        now_ms = clock.time_ns() // 1_000_000
    uuid = bytearray(random(16))
    uuid[6], uuid[8] = uuid[6] & 0x0F | 0x40, uuid[8] & 0x3F | 0x80  # RFC 9562 version 4
    return TopicIdentity(now_ms, bytes(uuid), f"top_{ulid(now_ms, random)}")


def ulid(now_ms: int, random: Random | None = None) -> str:
    """A ULID: 48 bits of time, 80 random bits, in Crockford's base 32."""
    random = random or os.urandom
    value = now_ms << 80 | int.from_bytes(random(10), "big")
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


def new_cluster_id(random: Random | None = None) -> str:
    """A cluster id in Kafka's form: 22 characters of URL-safe base 64."""
    random = random or os.urandom
    return base64.urlsafe_b64encode(random(16)).decode()[:22]
