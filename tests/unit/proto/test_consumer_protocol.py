"""Subscriptions and assignments of members, valid and garbled."""

from __future__ import annotations

import struct

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from quafka_proto.consumer_protocol import assigned_partitions, subscribed_topics
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
