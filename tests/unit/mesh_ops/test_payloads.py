"""The packer that is kept: after an error, and after a large value."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest

from quafka_mesh_ops.payloads import UNCOUNTED, has_long_bytes, pack


def test_an_error_leaves_nothing_behind() -> None:
    for bad in (object(), 1 << 70, ["a" * 100, [1, 2, object()]]):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            pack(["first", bad])
        assert pack([1, "x"]) == msgpack.packb([1, "x"])


def test_a_large_value_between_small_ones() -> None:
    for value in ([1], ["x" * 3 * UNCOUNTED], [2]):
        assert pack(value) == msgpack.packb(value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_long_bytes_are_found_at_any_depth(kind: type) -> None:
    assert has_long_bytes([1, [[], ["x", kind(bytes(2_048))]]])
    assert not has_long_bytes([1, [[], ["x" * 5_000, kind(bytes(2_047))]]])
