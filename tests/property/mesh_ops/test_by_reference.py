"""Reading msgpack by reference returns and refuses the same as msgpack."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops import by_reference
from quafka_mesh_ops.by_reference import LONG, TooManyValuesError, unpack

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.integers(0, 70_000).map(bytes),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=20), max_leaves=30)


@given(values)
def test_it_reads_what_msgpack_writes(value: Any) -> None:
    payload = msgpack.packb(value)
    try:
        assert unpack(payload) == value
    except TooManyValuesError:
        assert len(payload) < by_reference.WORTHWHILE


@given(values, st.data())
def test_what_is_cut_short_or_goes_on_is_refused(value: Any, data: st.DataObject) -> None:
    payload = msgpack.packb(value)
    cut = data.draw(st.integers(0, len(payload) - 1))
    for wrong in (payload[:cut], payload + b"\0"):
        with pytest.raises((ValueError, TooManyValuesError)):
            unpack(wrong)


@given(st.binary(max_size=60))
def test_anything_is_read_as_msgpack_reads_it_or_refused(payload: bytes) -> None:
    try:
        expected = msgpack.unpackb(payload, max_map_len=0, max_ext_len=0)
    except Exception:
        with pytest.raises((ValueError, TooManyValuesError)):
            unpack(payload)
        return
    try:
        assert repr(unpack(payload)) == repr(expected)
    except TooManyValuesError:
        assert len(payload) > by_reference._FEW // 2
    except ValueError:
        # Empty ones pass msgpack's limits; the caller's hooks refuse them.
        assert any(word in repr(expected) for word in ("{}", "ExtType", "Timestamp"))


def test_long_byte_strings_are_views_of_the_payload() -> None:
    payload = bytearray(msgpack.packb([1, bytes(LONG), bytes(LONG - 1)]))
    _, long, short = unpack(payload)
    assert type(short) is bytes
    assert isinstance(long, memoryview)
    assert long.obj is payload


def test_many_short_values_are_left_to_msgpack() -> None:
    with pytest.raises(TooManyValuesError):
        unpack(msgpack.packb([bytes(1_000)] * 1_000))
