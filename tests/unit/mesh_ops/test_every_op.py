"""Every op, and every answer, at every size, over a live pair: it arrives whole, or it fails alone.

What there is to send comes from the table of ops itself.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quafka_mesh_ops import broker_session, frames, gateway_session, payloads
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.envelopes import encode_body, encode_response
from quafka_mesh_ops.errors import OpFailedError, OpTooLargeError
from quafka_mesh_ops.frames import MAX_FRAME
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.base import AnyOp, AnyStruct, OpCode, OpKind
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_mesh_ops.ops.groups import JoinGroup
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOps, FetchOpsResp, ProduceOp, ProduceOps
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.scheduler import BOUNDS
from quafka_mesh_ops.transport import liveness
from quafka_proto.schema.groups import JoinGroupRequestProtocol
from tests.support.suites import more
from tests.unit.mesh_ops.mesh import in_memory, mesh
from tests.unit.mesh_ops.op_fillers import check_types, filled, least

TOO_LARGE = 10
FIRST_ID = 1 << 20
"""Makes the ids of all requests take the same number of bytes."""


class Echo:
    """Handlers that accept any op and return a given answer, and the calls to them."""

    def __init__(self) -> None:
        self.received: list[AnyStruct] = []
        self.answer: AnyStruct | None = None
        self.client: MeshClient

    async def handle(self, context: OpContext, op: AnyOp) -> AnyStruct:
        """The handler of every op."""
        self.received.append(op)
        return self.answer or least(op.response)

    async def send(self, op: AnyOp) -> None:
        """Assert that the op reaches the handler unchanged."""
        self.received.clear()
        await self.call(op)
        assert self.received == [op]
        check_types(type(op), self.received[0])

    async def fetch(self, op: AnyOp, answer: AnyStruct) -> None:
        """Assert that the answer reaches the caller unchanged."""
        self.answer = answer
        try:
            found = await self.call(op)
        finally:
            self.answer = None
        assert found == answer
        check_types(type(answer), found)

    async def call(self, op: AnyOp) -> Any:
        """Send the op; returns its answer."""
        lane = 0 if isinstance(op, ProduceOps) else None
        return await self.client.call(op, org_id=1, deadline=20, lane=lane)


@asynccontextmanager
async def echo(memory: bool = False) -> AsyncIterator[Echo]:
    """A pair that must keep its first connection, whatever happens to ops."""
    echo = Echo()
    handlers = {op.code: echo.handle for op in OPS.values()}
    if memory:
        del handlers[OpCode.OPEN_MEMORY]
    async with mesh(handlers, memory=memory) as m:
        echo.client = m.client
        if memory:
            await in_memory(m)
        m.client._last_id = FIRST_ID
        yield echo
        assert m.client.counters().reconnects == 0
        assert len(m.server.sessions) == 1


@pytest.mark.parametrize("size", [1, 64 << 10, *more([2 << 10, 1 << 20])])
async def test_every_op_and_answer_arrives_whole(size: int) -> None:
    async with echo() as e:
        for op_type in OPS.values():
            for _, op, _ in filled(op_type, size, many=size <= 2 << 10):
                await e.send(op)
            for _, answer, _ in filled(op_type.response, size, many=size <= 2 << 10):
                await e.fetch(least(op_type), answer)


LIMIT = 80_000


async def test_what_fills_a_frame_arrives_and_one_byte_more_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames of 80,000 bytes, so that every field of every op can be tried."""
    monkeypatch.setattr(frames, "MAX_FRAME", LIMIT)
    async with echo() as e:
        for op_type in OPS.values():
            for place, op, _ in filled(op_type, LIMIT, many=False):
                with pytest.raises(OpTooLargeError) as refused:
                    await e.call(op)
                await e.send(_shorter(op_type, place, refused.value))
            for place, answer, _ in filled(op_type.response, LIMIT, many=False):
                with pytest.raises(OpTooLargeError) as refused:
                    encode_response(FIRST_ID, 0, encode_body(answer))
                fits = _shorter(op_type.response, place, refused.value)
                await e.fetch(least(op_type), fits)
                with pytest.raises(OpFailedError) as failed:
                    await e.fetch(least(op_type), _filled_at(op_type.response, place, LIMIT))
                assert failed.value.error_code == TOO_LARGE


def _shorter(part_type: type[AnyStruct], place: str, refused: OpTooLargeError) -> Any:
    """Return the refused value, shortened to the largest allowed size."""
    (size,) = re.findall(r"an op of (\d+) bytes; a frame carries at most 80000", str(refused))
    return _filled_at(part_type, place, LIMIT - (int(size) - LIMIT))


def _filled_at(part_type: type[AnyStruct], place: str, size: int) -> Any:
    (found,) = [f.part for f in filled(part_type, size, many=False) if f.field == place]
    return found


@pytest.mark.long
async def test_as_many_values_as_a_reader_takes_arrive_and_more_fail_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payloads, "MAX_ARRAY", 1_000)
    monkeypatch.setattr(payloads, "_MAX_COST", 12_000)
    monkeypatch.setattr(payloads, "UNCOUNTED", 0)
    async with echo() as e:
        for op_type in OPS.values():
            for fewest, more in _longer_and_longer(op_type):
                await e.send(fewest)
                with pytest.raises(OpTooLargeError, match=r"too many values|a list of more than"):
                    await e.call(more)
            for fewest, more in _longer_and_longer(op_type.response):
                await e.fetch(least(op_type), fewest)
                with pytest.raises(OpFailedError) as failed:
                    await e.fetch(least(op_type), more)
                assert failed.value.error_code == TOO_LARGE


def _longer_and_longer(part_type: type[AnyStruct]) -> Iterator[tuple[Any, Any]]:
    """Yield, for each list in a type, the longest allowed one and one with another item."""
    for place in [f.field for f in filled(part_type, 1) if f.many]:

        def of(items: int, place: str = place) -> Any:
            (found,) = [f.part for f in filled(part_type, 1, items=items) if f.field == place]
            return found

        low, high = 1, 1_100
        while high - low > 1:
            middle = (low + high) // 2
            try:
                encode_body(of(middle))
                low = middle
            except OpTooLargeError:
                high = middle
        assert low > 1
        yield of(low), of(high)


@pytest.mark.long
async def test_the_real_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most bytes and values that Kafka's own limits allow in one request."""
    for module in (broker_session, liveness):  # both ends share a loop that is busy for long
        monkeypatch.setattr(module, "SILENT_SECONDS", 60.0)
    row = [CommitOffset("a-topic", i, 1 << 40, 1, "", bytes(16)) for i in range(100_000)]
    async with echo() as e:
        await e.send(CommitOffsets("g", 1, "m", "", row))
        with pytest.raises(OpTooLargeError):
            await e.call(CommitOffsets("g", 1, "m", "", row * 2))
        await e.send(ProduceOps([ProduceOp("t", 0, bytes(100 << 20))]))
        with pytest.raises(OpTooLargeError):
            await e.call(ProduceOps([ProduceOp("t", 0, bytes(MAX_FRAME))]))
        await e.send(_join_of(BOUNDS[OpKind.GROUP_WAITS].largest - 1_000))
        with pytest.raises(OpTooLargeError):
            await e.call(_join_of(BOUNDS[OpKind.GROUP_WAITS].largest))
        much = bytes(MAX_FRAME - 1_000)
        await e.fetch(least(FetchOps), FetchOpsResp([FetchOpResp([much], 1)]))
        with pytest.raises(OpFailedError):
            await e.fetch(least(FetchOps), FetchOpsResp([FetchOpResp([much, much], 1)]))


def _join_of(size: int) -> JoinGroup:
    return JoinGroup(
        "g", "", "", "consumer", [JoinGroupRequestProtocol("range", bytes(size))], 10_000, 10_000
    )


def test_a_broker_bears_with_the_largest_ops_of_all_kinds_at_once() -> None:
    on_control = max(bounds.largest for kind, bounds in BOUNDS.items() if kind != OpKind.RECORDS)
    assert min(MAX_FRAME, on_control) + MAX_FRAME <= gateway_session.MAX_UNFINISHED
