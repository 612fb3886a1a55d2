"""Metadata and assignments of members, as clients and brokers write them."""

from __future__ import annotations

import struct
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from quafka_proto.consumer_protocol import (
    assigned_partitions,
    assignment_of,
    subscribed_topics,
    subscription_of,
)
from quafka_proto.errors import Malformed

_NAMES = st.text(max_size=20)
_PARTITIONS = st.dictionaries(_NAMES, st.sets(st.integers(0, 1 << 20), max_size=5), max_size=4)


def metadata(
    version: int, topics: list[str], user_data: bytes | None, owned: dict[str, set[int]], rack: str
) -> bytes:
    """As Java's ConsumerProtocolSubscription."""
    parts = [struct.pack(">hi", version, len(topics))]
    parts += [struct.pack(">h", len(name.encode())) + name.encode() for name in topics]
    parts.append(
        struct.pack(">i", -1 if user_data is None else len(user_data)) + (user_data or b"")
    )
    if version >= 1:
        parts.append(assignment_of(0, owned)[2:-4])
    if version >= 2:
        parts.append(struct.pack(">i", 5))
    if version >= 3:
        parts.append(struct.pack(">h", len(rack.encode())) + rack.encode())
    return b"".join(parts)


@given(
    st.integers(0, 3), st.lists(_NAMES, max_size=4), st.none() | st.binary(max_size=9),
    _PARTITIONS, _NAMES,
)  # fmt: skip
def test_a_subscription_is_read_as_it_was_written(
    version: int, topics: list[str], user_data: bytes | None, owned: dict[str, set[int]], rack: str
) -> None:
    written = metadata(version, topics, user_data, owned, rack)
    read = subscription_of(written)
    assert (read.version, read.topics) == (version, set(topics))
    assert subscribed_topics(written) == set(topics)
    expected = {topic: sorted(its) for topic, its in owned.items()} if version >= 1 else {}
    assert read.owned == expected
    assert read.rack == (rack if version >= 3 else "")


@given(st.integers(0, 3), _PARTITIONS)
def test_an_assignment_is_read_as_it_was_written(version: int, parts: dict[str, set[int]]) -> None:
    read = assigned_partitions(assignment_of(version, parts))
    assert read == {topic: sorted(its) for topic, its in parts.items()}


@given(st.binary(max_size=60))
def test_anything_else_is_malformed(data: bytes) -> None:
    with suppress(Malformed):
        subscription_of(data)
