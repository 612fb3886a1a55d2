"""The request framer returns the frames of a stream, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.edge.framing import RequestFramer
from quafka_proto.errors import Malformed

LIMIT = 1_000


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=200), max_size=12),
    cuts=st.lists(st.integers(min_value=1, max_value=50), min_size=1),
)
def test_frames_survive_any_fragmentation(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    framer = RequestFramer(LIMIT)
    found: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        found += framer.feed(stream[at : at + size])
        at += size
        turn += 1
    assert found == bodies
    assert framer.partial == 0


@given(st.integers(min_value=-(1 << 31), max_value=(1 << 31) - 1))
def test_lengths_outside_the_limit_are_refused_at_once(length: int) -> None:
    framer = RequestFramer(LIMIT)
    head = length.to_bytes(4, "big", signed=True)
    if 0 < length <= LIMIT:
        assert framer.feed(head) == []
    else:
        with pytest.raises(Malformed):
            framer.feed(head)


def test_a_partial_frame_holds_only_what_arrived() -> None:
    framer = RequestFramer(1 << 30)
    framer.feed((1 << 29).to_bytes(4, "big") + b"x" * 10)
    assert framer.partial == 10
