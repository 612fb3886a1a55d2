"""What members are assigned, also by leaders who write something else."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from quafka_proto.consumer_protocol import assigned_partitions
from quafka_proto.errors import Malformed

TWO = ConsumerProtocolMemberAssignment(0, [("a", [2, 0]), ("b-é", [7])], b"rest").encode()


def test_what_a_client_writes_is_read() -> None:
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
