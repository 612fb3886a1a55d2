"""A send buffer behaves as a bytearray, without copies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.transport.send_buffer import SendBuffer

adds = st.tuples(st.just("add"), st.binary(max_size=9))
cuts = st.tuples(st.just("cut"), st.integers(0, 30))
slices = st.tuples(st.just("slice"), st.tuples(st.integers(0, 40), st.integers(0, 40)))


@given(st.lists(st.one_of(adds, cuts, slices), max_size=60))
def test_it_is_a_bytearray(steps: list[tuple[str, object]]) -> None:
    model, buffer = bytearray(), SendBuffer()
    for what, value in steps:
        if isinstance(value, bytes):
            model += value
            buffer += value
        elif isinstance(value, tuple):
            start, stop = value
            assert buffer[start:stop] == model[start:stop], what
        elif isinstance(value, int):
            del model[:value]
            del buffer[:value]
        assert len(buffer) == len(model)
        assert buffer[0 : len(model)] == model


def test_pieces_are_what_was_added() -> None:
    first, second = bytearray(b"abcd"), bytearray(b"efgh")
    buffer = SendBuffer()
    buffer += first
    buffer += memoryview(second)
    del buffer[:1]
    pieces = buffer.pieces(1, 5)
    assert [bytes(piece) for piece in pieces] == [b"cd", b"ef"]
    assert [piece.obj for piece in pieces] == [first, second]


def test_only_the_front_is_deleted() -> None:
    buffer = SendBuffer()
    buffer += b"abc"
    with pytest.raises(ValueError, match="front"):
        del buffer[1:2]
