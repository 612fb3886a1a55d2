"""A peer that never reads: the other side stays within its bounds and serves other peers."""

from __future__ import annotations

import asyncio

import pytest

from quafka_loop import clock
from quafka_mesh_ops import op_runner
from quafka_mesh_ops import server as server_module
from quafka_mesh_ops.envelopes import encode_body, encode_request
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.frames import Tag, encode_number
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.base import OpCode, OpKind, WireStruct
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOps, FetchOpsResp, ProduceOps
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.scheduler import BOUNDS, Bounds
from quafka_proto.errors import ErrorCode
from tests.unit.mesh_ops.memory import MB, at_most
from tests.unit.mesh_ops.mesh import fetch_of, mesh, produce_of
from tests.unit.mesh_ops.raw_quic import RawClient, credentials, raw_client


async def read_in_turn(context: OpContext, op: FetchOps) -> WireStruct:
    """Like the broker's fetch: parked, then reads once `may_read` allows it."""
    await context.may_read()
    await asyncio.sleep(0)
    return FetchOpsResp([FetchOpResp([bytes(p.max_bytes)], 1) for p in op.partitions])


def deaf(client: RawClient) -> None:
    """From now on the client receives nothing, so it acknowledges nothing."""
    client.datagram_received = lambda data, addr: None  # type: ignore[method-assign]


async def test_a_gateway_that_never_reads_costs_the_broker_a_bounded_amount() -> None:
    """A thousand fetches of 4 MiB at once: 4 GiB if all were read at once."""
    async with (
        mesh({OpCode.FETCH: read_in_turn}) as m,
        raw_client(m.port, credentials(m.client_identity)) as client,
    ):
        with at_most(160 * MB):
            body = encode_body(fetch_of(4 * MB))
            for n in range(1_000):
                frame = encode_request(n, OpCode.FETCH, 1, "", "", 60_000, body)
                client._quic.send_stream_data(0, b"".join(frame))
            client.transmit()
            deaf(client)
            async with asyncio.timeout(20):
                while sum(counters.backlog_bytes for counters in m.server.counters()) <= 30 * MB:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(1)
            # Other peers are served as usual.
            answer = await m.client.call(fetch_of(MB), org_id=1, deadline=10)
            assert len(answer.partitions[0].records[0]) == MB


async def test_all_that_waited_for_a_turn_are_answered_once_the_gateway_reads() -> None:
    async with mesh({OpCode.FETCH: read_in_turn}) as m:
        calls = [m.client.call(fetch_of(3 * MB), org_id=1, deadline=30) for _ in range(60)]
        for answer in await asyncio.gather(*calls):
            assert len(answer.partitions[0].records[0]) == 3 * MB


async def test_a_turn_that_is_cancelled_is_the_next_ones() -> None:
    async with mesh({OpCode.FETCH: read_in_turn}) as m:
        for _ in range(20):
            calls = [
                asyncio.ensure_future(m.client.call(fetch_of(MB), org_id=1, deadline=30))
                for _ in range(30)
            ]
            await asyncio.sleep(0.005)
            for call in calls[::2]:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert all(not call.cancelled() for call in calls[1::2])
        (session,) = m.server.sessions
        async with asyncio.timeout(20):
            while session.busy:
                await asyncio.sleep(0.01)
        assert len(session._ops._turns) == 0


async def test_a_broker_that_never_answers_costs_the_gateway_a_bounded_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bytes of sent ops are bounded; unsent ops belong to their callers."""
    monkeypatch.setitem(BOUNDS, OpKind.RECORDS, Bounds(2_048, 10 * MB, 8 * MB))

    async def never(context: OpContext, op: ProduceOps) -> WireStruct:
        await asyncio.Event().wait()
        raise AssertionError

    async with mesh({OpCode.PRODUCE: never}) as m:
        records = bytes(MB)
        with at_most(64 * MB):
            calls = [
                asyncio.ensure_future(
                    m.client.call(produce_of(records), org_id=1, deadline=1.5, lane=n)
                )
                for n in range(200)
            ]
            await asyncio.sleep(0.7)
            counters = m.client.counters()
            assert 0 < counters.credit_used_bytes <= 10 * MB
            assert await m.client.call(DescribeTopics(), org_id=1, deadline=2)
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(
            isinstance(e, OutcomeUnknownError | PeerUnavailableError)
            # The broker's answer to an op whose deadline has passed may be faster than the client.
            or (isinstance(e, OpFailedError) and e.error_code == ErrorCode.REQUEST_TIMED_OUT)
            for e in ends
        ), {repr(e) for e in ends}


async def test_a_closing_broker_does_not_wait_for_the_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "_SILENT_SECONDS", 0.2)
    async with (
        mesh() as m,
        raw_client(m.port, credentials(m.client_identity)) as client,
    ):
        client.send(0, encode_number(Tag.PING, 1))
        await asyncio.wait_for(client.data.wait(), 20)
        deaf(client)  # the GOAWAY will never be acknowledged
        began = clock.monotonic()
        await m.server.close(drain=10)
        assert 0.2 <= clock.monotonic() - began < 8


async def test_fetches_that_wait_end_with_their_shard_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with mesh() as m:
        (session,) = m.server.sessions
        with monkeypatch.context() as patch:
            patch.setattr(op_runner, "_REPLY_BACKLOG", -1)  # a peer that has not read
            leaves, stays = (
                asyncio.ensure_future(m.client.call(fetch_of(10), org_id=org, deadline=20))
                for org in (1, 2)
            )
            while len(session._ops.waiting) < 2:
                await asyncio.sleep(0.001)
            first, second = (running for running, _ in session._ops.waiting.values())
            second.shard = 7
            assert first.shard is not None
            assert session._ops.end_shard(first.shard) == []
        session._ops.progress()
        with pytest.raises(OpFailedError):
            await leaves
        assert (await stays).partitions[0].records
