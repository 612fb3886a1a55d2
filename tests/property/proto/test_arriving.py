"""Bytes that arrive in parts become the whole, in little more memory than they have."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_proto import arriving
from quafka_proto.arriving import ArrivingBytes
from quafka_proto.message import Buffer

KINDS = (bytes, bytearray, memoryview)


@given(st.lists(st.tuples(st.binary(max_size=80), st.sampled_from(KINDS))))
def test_the_whole_is_the_parts_in_their_order(parts: list[tuple[bytes, type[Buffer]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arriving, "_SHORT", 20)
        patch.setattr(arriving, "_BLOCK", 60)
        whole = ArrivingBytes()
        for part, kind in parts:
            whole.add(kind(part))
        assert whole.size == sum(len(part) for part, _ in parts)
        assert whole.take() == b"".join(part for part, _ in parts)


def test_a_buffer_of_the_caller_is_not_extended() -> None:
    given, whole = bytearray(5_000), ArrivingBytes()
    whole.add(given)
    whole.add(b"short")
    assert given == bytes(5_000)
    assert whole.take() == bytes(5_000) + b"short"


@pytest.mark.parametrize("size", [2, 5_000, 200_000])
def test_parts_take_little_more_memory_than_their_bytes(size: int) -> None:
    """A part is a view of bytes that are sixteen times as long, as of a packet's."""
    count = max(64, 100_000 // size)
    tracemalloc.start()
    try:
        whole = ArrivingBytes()
        for at in range(count):
            whole.add(memoryview(bytes([at % 256]) * 16 * size)[:size])
        held, _ = tracemalloc.get_traced_memory()
        assert held < 1.3 * size * count + 16 * max(size, arriving._BLOCK)
        assert whole.take() == b"".join(bytes([at % 256]) * size for at in range(count))
    finally:
        tracemalloc.stop()
