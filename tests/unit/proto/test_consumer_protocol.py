"""Subscriptions and assignments of members, valid and garbled."""

from __future__ import annotations

import struct

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from quafka_proto.consumer_protocol import (
    assigned_partitions,
    subscribed_topics,
    subscription_of,
    version_of,
)
from quafka_proto.errors import Malformed

TWO = ConsumerProtocolMemberAssignment(0, [("a", [2, 0]), ("b-é", [7])], b"rest").encode()


def test_assignments_of_a_client_are_read() -> None:
    assert assigned_partitions(TWO) == {"a": [2, 0], "b-é": [7]}
    nothing = ConsumerProtocolMemberAssignment(3, [], b"").encode()
    assert assigned_partitions(nothing) == {}


def test_an_empty_assignment_is_one_of_nothing() -> None:
    assert assigned_partitions(b"") == {}


@pytest.mark.parametrize(
    "assignment",
    [
        b"\x00",
        TWO[:9],
        TWO[:20],
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x01\x00\x01a\x7f\xff\xff\xff",
    ],
)
def test_other_bytes_are_refused(assignment: bytes) -> None:
    with pytest.raises(Malformed):
        assigned_partitions(assignment)


def test_a_name_that_leads_back_is_refused() -> None:
    """Otherwise 50 kB that claim to be long would take all memory."""
    back = struct.pack(">h", -32_254)
    head = struct.pack(">hih", 0, 10_000, 32_767)
    partitions = struct.pack(">i1806i", 1_806, *[0] * 1_806)
    data = bytearray(head + bytes(32_767) + partitions + back + bytes(10_000))
    data[7_751:7_755] = struct.pack(">i", 8_062)
    assert data[40_003:40_005] == back
    with pytest.raises(Malformed):
        assigned_partitions(bytes(data))


BOTH = b"\x00\x03\x00\x00\x00\x02\x00\x01a\x00\x03b-\x63\xff\xff\xff\xff"


def test_subscribed_topics_are_found_and_later_fields_ignored() -> None:
    assert subscribed_topics(BOTH) == {"a", "b-c"}
    assert subscribed_topics(b"\x00\x00" + bytes(4)) == set()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        BOTH[:5],
        BOTH[:9],
        BOTH[:12],
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_other_metadata_is_refused(metadata: bytes) -> None:
    with pytest.raises(Malformed):
        subscribed_topics(metadata)


TOPICS = b"\0\0\0\1\0\1t"
NONE = b"\xff" * 4
OWNED = b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\5"
RACK = b"\0\1r"


@pytest.mark.parametrize(
    ("metadata", "version", "owned", "rack"),
    [
        (b"\0\0" + TOPICS + NONE, 0, {}, ""),
        (b"\0\0" + TOPICS + NONE + b"later", 0, {}, ""),
        (b"\0\1" + TOPICS + NONE, 1, {}, ""),  # kafka-go
        (b"\0\1" + TOPICS + b"\0\0\0\2xx" + OWNED, 1, {"t": [0, 5]}, ""),
        (b"\0\2" + TOPICS + NONE + OWNED + NONE, 2, {"t": [0, 5]}, ""),
        (b"\0\3" + TOPICS + NONE + OWNED + NONE + b"\xff\xff", 3, {"t": [0, 5]}, ""),
        (b"\0\3" + TOPICS + NONE + OWNED + NONE + RACK, 3, {"t": [0, 5]}, "r"),
        (b"\x7f\xff" + TOPICS + NONE + OWNED + NONE + RACK + b"new", 3, {"t": [0, 5]}, "r"),
    ],
)
def test_subscriptions_of_each_version(
    metadata: bytes, version: int, owned: dict[str, list[int]], rack: str
) -> None:
    found = subscription_of(metadata)
    assert (found.version, found.topics) == (version, {"t"})
    assert (found.owned, found.rack) == (owned, rack)
    assert version_of(metadata) == version


@pytest.mark.parametrize(
    "metadata",
    [
        b"\0\0" + TOPICS,
        b"\0\0" + TOPICS + b"\0\0\0\x64xx",
        b"\0\1" + TOPICS + NONE + b"\xff\xff\xff\xfe",
        b"\0\1" + TOPICS + NONE + OWNED[:-1],
        b"\0\1" + TOPICS + NONE + OWNED[:3],
        b"\0\2" + TOPICS + NONE,
        b"\0\2" + TOPICS + NONE + OWNED + NONE[1:],
        b"\0\3" + TOPICS + NONE + OWNED + NONE,
        b"\0\3" + TOPICS + NONE + OWNED + NONE + b"\0\2r",
        b"\x7f\xff",
        b"\xff\xff" + TOPICS + NONE,
    ],
)
def test_subscriptions_that_are_cut_short_or_have_no_version_are_refused(metadata: bytes) -> None:
    with pytest.raises(Malformed):
        subscription_of(metadata)
    assert 0 <= version_of(metadata) <= 3
