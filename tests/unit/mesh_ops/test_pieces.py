"""Large ops in pieces: on one stream, small ops of other orgs pass them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from quafka_mesh_ops import gateway_session
from quafka_mesh_ops.envelopes import encode_body, encode_request
from quafka_mesh_ops.errors import OpFailedError, ProtocolError
from quafka_mesh_ops.frames import FrameReader, PieceKind, Tag, decode_piece, encode_piece
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.base import OpCode, WireStruct
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets, CommitOffsetsResp
from quafka_mesh_ops.ops.records import ProduceOps, ProduceOpsResp
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.pieces import AHEAD_BYTES, PIECE_BYTES, Pieces, StreamTurns
from tests.unit.mesh_ops.mesh import mesh, produce_of


@dataclass(eq=False)
class Sent:
    """As much of a call as a stream needs."""

    request_id: int
    org_id: int


class Stream:
    """A stream that sends when it is told to, and what was written to it."""

    largest_whole = PIECE_BYTES

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.turns = StreamTurns[Sent](self, 0)
        self._unsent = 0

    def unsent(self, index: int) -> int:
        assert index == 0
        return self._unsent

    def write_op(self, call: Sent, frame: list[Any]) -> None:
        self.written.append(b"".join(frame))
        self._unsent += len(self.written[-1])

    def write_piece(self, call: Sent, frame: list[Any], *, is_last: bool) -> None:
        self.write_op(call, frame)
        _, piece, _ = decode_piece(FrameReader().feed(self.written[-1])[0][1])
        assert is_last == (piece is PieceKind.LAST)

    def drain(self) -> list[bytes]:
        """Let all leave; returns what was written."""
        while self.turns.waits:
            self._unsent = 0
            self.turns.progress()
        return self.written


def frame_of(request_id: int, size: int) -> bytes:
    op = produce_of(b"r" * size)
    return b"".join(encode_request(request_id, op.code, 1, "", "", 1, encode_body(op)))


def joined(written: list[bytes]) -> list[int]:
    """The request ids in the order in which their frames are whole at the other end."""
    pieces, reader, found = Pieces(1 << 30), FrameReader(), list[int]()
    for data in written:
        ((tag, payload),) = reader.feed(data)
        frame = pieces.feed(0, payload) if tag is Tag.PIECE else (tag, payload)
        if frame is not None:
            assert frame[0] is Tag.OP
            found.append(payload_id(frame[1]))
    assert pieces.unfinished == 0
    return found


def payload_id(payload: Any) -> int:
    from quafka_mesh_ops.long_payloads import request_of

    return request_of(payload)[0].request_id


def test_a_small_op_of_another_org_passes_a_large_one() -> None:
    stream = Stream()
    for request_id, org, size in ((1, 1, 5 << 20), (2, 1, 10), (3, 2, 10), (4, 2, 10)):
        stream.turns.add(Sent(request_id, org), [frame_of(request_id, size)])
    assert len(b"".join(stream.written)) < AHEAD_BYTES + PIECE_BYTES + 100
    assert joined(stream.drain()) == [3, 4, 1, 2], "within an org they keep their order"


def test_orgs_with_large_ops_have_equal_parts_of_the_stream() -> None:
    stream = Stream()
    for org in (1, 2, 3):
        stream.turns.add(Sent(org, org), [frame_of(org, 1 << 20)])
    stream.drain()
    order = [decode_piece(FrameReader().feed(data)[0][1])[0] for data in stream.written]
    for end in range(len(order)):
        assert abs(order[:end].count(1) - order[:end].count(3)) <= AHEAD_BYTES // PIECE_BYTES + 2
    assert joined(stream.written) == [1, 2, 3]


def test_what_is_cancelled_is_not_written_any_more() -> None:
    stream = Stream()
    large, behind = Sent(1, 1), Sent(2, 1)
    stream.turns.add(large, [frame_of(1, 1 << 20)])
    stream.turns.add(behind, [frame_of(2, 10)])
    assert stream.turns.cancel(behind)
    assert not stream.turns.cancel(behind)
    assert stream.turns.cancel(large)
    assert not stream.turns.waits
    assert joined(stream.written) == []
    assert decode_piece(FrameReader().feed(stream.written[-1])[0][1])[1] is PieceKind.ABANDONED


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"short"], "not a piece"),
        ([b"".join(encode_piece(1, PieceKind.MORE, [bytes(10)]))[2:]], "a piece of 10 bytes"),
        ([bytes(8) + b"\x03"], "a piece of kind 3"),
        ([bytes(8) + b"\x01" + b"\x03\x00"], "not the frame of an op"),
        ([bytes(8) + b"\x01"], "not the frame of an op"),
        ([bytes(8) + b"\x00" + bytes(5_000)] * 3, "more than 12000 bytes"),
    ],
)
def test_what_is_no_piece_is_refused(frames: list[bytes], reason: str) -> None:
    pieces = Pieces(12_000)
    for frame in frames[:-1]:
        assert pieces.feed(0, frame) is None
    with pytest.raises(ProtocolError, match=reason):
        pieces.feed(0, frames[-1])


async def test_small_ops_do_not_wait_for_another_orgs_large_one() -> None:
    begun: list[str] = []

    async def commit(context: OpContext, op: CommitOffsets) -> WireStruct:
        begun.append("commit")
        return CommitOffsetsResp([0] * len(op.offsets))

    async def describe(context: OpContext, op: DescribeTopics) -> WireStruct:
        begun.append("describe")
        return DescribeTopicsResp("c", [])

    async with mesh({OpCode.COMMIT_OFFSETS: commit, OpCode.DESCRIBE_TOPICS: describe}) as m:
        m.client._turns.shared = True
        offsets = [CommitOffset("t", n, 1, metadata="m" * 4_000) for n in range(4_000)]
        op = CommitOffsets("g", 1, "m", "", offsets)
        large = asyncio.ensure_future(m.client.call(op, org_id=1, deadline=60))
        while not m.client.counters().ops:
            await asyncio.sleep(0)
        for _ in range(3):
            await m.client.call(DescribeTopics(), org_id=2, deadline=10)
        assert not large.done()
        assert len((await large).partitions) == 4_000
        assert begun == ["describe"] * 3 + ["commit"]


async def test_produces_of_an_org_keep_their_order_on_a_lane_and_others_pass() -> None:
    begun: list[tuple[int, int]] = []

    async def produce(context: OpContext, op: ProduceOps) -> WireStruct:
        begun.append((context.org_id, len(op.partitions[0].records)))
        return ProduceOpsResp([])

    async with mesh({OpCode.PRODUCE: produce}) as m:
        m.client._turns.shared = True
        sizes = [(1, 8 << 20), (1, 10), (2, 20), (1, 1 << 20), (2, 30)]
        await asyncio.gather(
            *(
                m.client.call(produce_of(bytes(size)), org_id=org, deadline=60, lane=1)
                for org, size in sizes
            )
        )
        for org in (1, 2):
            assert [each for each in begun if each[0] == org] == [
                each for each in sizes if each[0] == org
            ]
        assert begun[:2] == [(2, 20), (2, 30)]


async def test_a_broker_of_an_earlier_version_gets_whole_ops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unknown(*_: object) -> WireStruct:
        raise OpFailedError(35)

    monkeypatch.setattr(gateway_session, "_take_pieces", unknown)
    async with mesh() as m:
        m.client._turns.shared = True
        stored = await m.client.call(produce_of(bytes(1 << 20)), org_id=1, deadline=20)
        assert stored.partitions[0].base_offset == 1 << 20
        session = m.client._connector.session
        assert session is not None
        assert not session._turns
