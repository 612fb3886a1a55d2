"""The packer that is kept: after an error, and after a large value."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest

from quafka_mesh_ops.envelopes import encode_body, encode_request
from quafka_mesh_ops.ops.base import Op, WireStruct
from quafka_mesh_ops.ops.codec import from_wire
from quafka_mesh_ops.ops.groups import (
    JoinedMember,
    JoinGroup,
    JoinGroupResp,
    SyncGroup,
    SyncGroupResp,
)
from quafka_mesh_ops.payloads import UNCOUNTED, has_long_bytes, pack, unpack
from quafka_proto.schema.groups import JoinGroupRequestProtocol, SyncGroupRequestAssignment


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


LARGE = bytes(1_000_000)


@pytest.mark.parametrize(
    "struct",
    [
        JoinGroup("g", "m", "", "consumer", [JoinGroupRequestProtocol("range", LARGE)], 1, 1),
        JoinGroupResp(members=[JoinedMember("m", "", LARGE)]),
        SyncGroup("g", 1, "m", "", [SyncGroupRequestAssignment("m", LARGE)]),
        SyncGroupResp(assignment=LARGE),
    ],
    ids=lambda struct: type(struct).__name__,
)
def test_what_members_send_each_other_is_not_copied(struct: WireStruct) -> None:
    """A join that waits to be sent holds it once, not three times."""
    body = encode_body(struct)
    assert any(piece is LARGE for piece in body)
    assert from_wire(type(struct), unpack(b"".join(body))) == struct
    if isinstance(struct, Op):
        frame = encode_request(1, struct.code, 1, "", "", 1, body)
        assert any(piece is LARGE for piece in frame)
