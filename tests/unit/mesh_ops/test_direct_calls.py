"""Calls that are answered, run and continued without turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from quafka_loop import clock
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_loop.log_context import CURRENT
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError
from quafka_mesh_ops.frames import Tag
from quafka_mesh_ops.grants import AllowListEntry, Grant
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import Buffer, OpCode, OpKind, WireStruct
from quafka_mesh_ops.ops.probe import Probe, ProbeResp
from quafka_mesh_ops.ops.records import ProduceOps, ProduceOpsResp
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.scheduler import BOUNDS
from quafka_mesh_ops.server import MeshServer
from quafka_proto.errors import ErrorCode
from tests.unit.mesh_ops.mesh import Mesh, mesh, produce_of


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def describe(m: Mesh, *, deadline: float = 5, topics: list[str] | None = None) -> EagerTask[object]:
    op = DescribeTopics(topics)
    return EagerTask(m.client.call(op, org_id=1, deadline=deadline))


async def test_a_handler_starts_in_the_call_that_reads_its_frame_and_may_end_in_it() -> None:
    async with mesh() as m:
        (session,) = m.server.sessions
        seen: list[tuple[int, bool]] = []
        act = session._act

        def watch(stream_id: int, tag: Tag, payload: Buffer) -> None:
            act(stream_id, tag, payload)
            if tag is Tag.OP:
                seen.append((len(session.running), m.broker.parked.is_set()))

        session._act = watch  # type: ignore[method-assign]
        await describe(m)
        parked = describe(m, topics=["park"])
        await until(lambda: len(seen) == 2)
        assert seen == [(0, False), (1, True)]
        m.broker.release.set()
        await parked


async def test_a_caller_continues_in_the_call_that_reads_its_answer_and_may_call_again() -> None:
    """One packet has the answers of many ops; each caller sends another op from within it."""
    rounds, callers = 50, 40
    async with mesh() as m:
        session = m.client._connector.session
        assert session is not None
        inside, depth, deepest, continued = 0, 0, 0, 0
        act = session._act

        def watch(tag: Tag, payload: Buffer) -> None:
            nonlocal inside, depth, deepest
            inside, depth = inside + 1, depth + 1
            deepest = max(deepest, depth)
            act(tag, payload)
            depth -= 1

        session._act = watch  # type: ignore[method-assign]

        async def call_often() -> None:
            nonlocal continued
            for _ in range(rounds):
                await m.client.call(DescribeTopics(), org_id=1, deadline=5)
                continued += depth

        await asyncio.gather(*[EagerTask(call_often()) for _ in range(callers)])
        assert continued == rounds * callers
        assert deepest == 1  # a chain of answered calls is a loop, not a recursion
        assert m.client.counters().ops == 0
        assert m.client.counters().credit_used_bytes == 0


async def test_waiting_calls_are_sent_in_order_as_answers_release_their_credit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BOUNDS, OpKind.RECORDS, BOUNDS[OpKind.RECORDS]._replace(ops=2))
    async with mesh() as m:
        names = [f"{n:04}" for n in range(2_000)]
        calls = [
            EagerTask(m.client.call(produce_of(b"x", topic=name), org_id=1, deadline=30, lane=0))
            for name in names
        ]
        await asyncio.gather(*calls)
        assert m.broker.started == names


async def test_a_call_that_is_cancelled_in_the_turn_of_its_answer() -> None:
    async with mesh() as m:
        session = m.client._connector.session
        assert session is not None
        call = describe(m)
        act = session._act

        def cancel_first(tag: Tag, payload: Buffer) -> None:
            if tag is Tag.RESPONSE:
                call.cancel()
            act(tag, payload)

        session._act = cancel_first  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: m.client.counters().ops == 0)
        session._act = act  # type: ignore[method-assign]
        assert not session.pending
        assert m.client.counters().credit_used_bytes == 0

        call = describe(m)
        done: list[bool] = []

        def cancel_after(tag: Tag, payload: Buffer) -> None:
            act(tag, payload)
            if tag is Tag.RESPONSE:
                done.append(call.done())
                assert not call.cancel()

        session._act = cancel_after  # type: ignore[method-assign]
        assert await call == DescribeTopicsResp("cluster", [])
        assert done == [True]


async def test_a_cancelled_op_whose_handler_goes_on_is_answered_to_nobody() -> None:
    ended = asyncio.Event()

    async def stubborn(context: OpContext, op: Probe) -> WireStruct:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(60)
        ended.set()
        return ProbeResp("1", 0)

    async with mesh({OpCode.PROBE: stubborn}) as m:
        call = EagerTask(m.client.call(Probe(), org_id=1, deadline=5))
        (session,) = m.server.sessions
        await until(lambda: bool(session.running))
        call.cancel()
        await asyncio.wait_for(ended.wait(), 30)
        await until(lambda: not session.running)
        assert await describe(m) == DescribeTopicsResp("cluster", [])


async def test_a_lost_connection_fails_all_its_calls_in_slices() -> None:
    """The callers continue at once, and call again while others are still to be failed."""
    async with mesh() as m:
        ends: list[str] = []

        async def one() -> None:
            try:
                await m.client.call(DescribeTopics(["park"]), org_id=1, deadline=30)
            except OutcomeUnknownError:
                ends.append("lost")
            clock.sleep(0.0002)
            await m.client.call(DescribeTopics(), org_id=1, deadline=30)
            ends.append("answered")

        calls = [EagerTask(one()) for _ in range(500)]
        await until(lambda: len(next(iter(m.server.sessions)).running) == 500)
        session = m.client._connector.session
        assert session is not None
        session.connection.abort("the peer is lost")
        assert 0 < ends.count("lost") < 500  # a slice
        assert not session.pending
        await asyncio.gather(*calls)
        assert ends.count("lost") == 500
        assert ends.count("answered") == 500
        await until(lambda: m.client.connected)
        assert m.client.counters().ops == 0
        assert await describe(m) == DescribeTopicsResp("cluster", [])


async def test_ops_after_one_whose_handler_closes_the_connection_do_not_start() -> None:
    started: list[int] = []

    async def close(context: OpContext, op: ProduceOps) -> WireStruct:
        started.append(1)
        (session,) = m.server.sessions
        session.connection.close("enough")
        return ProduceOpsResp([])

    async with mesh({OpCode.PRODUCE: close}) as m:
        calls = [
            EagerTask(m.client.call(produce_of(b"x"), org_id=1, deadline=5, lane=0))
            for _ in range(5)
        ]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(end) for end in ends} == {OutcomeUnknownError}
        assert started == [1]


@pytest.mark.parametrize("waits", [True, False])
async def test_a_revocation_during_an_op(waits: bool) -> None:
    """Enforced by the handler itself, before or after its first wait."""
    ours: dict[NodeId, Grant] = {}
    handled: list[str] = []

    async def revoke(context: OpContext, op: Probe) -> WireStruct:
        if waits:
            await asyncio.sleep(0)
        ours[context.peer] = ()
        server().enforce()
        handled.append("revoked")
        await DirectFuture[None]()
        return ProbeResp("1", 0)

    def server() -> MeshServer:
        return m.server

    async with mesh({OpCode.PROBE: revoke}) as m:
        node = m.client_identity.node_id
        ours[node] = (AllowListEntry(node),)
        m.server.gatekeeper._grants = ours.__getitem__
        parked = describe(m, topics=["park"])
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        with pytest.raises(OpFailedError) as failed:
            await m.client.call(Probe(), org_id=1, deadline=5)
        assert failed.value.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(OpFailedError) as failed:
            await parked
        assert failed.value.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert handled == ["revoked"]
        assert m.broker.cancelled == ["park"]
        (session,) = m.server.sessions
        assert (session.counters().ops, session.counters().credit_used_bytes) == (0, 0)


async def test_a_remembered_permission_ends_with_the_grant() -> None:
    async with mesh() as m:
        node = m.client_identity.node_id
        grants: dict[NodeId, Grant] = {node: (AllowListEntry(node),)}
        m.server.gatekeeper._grants = grants.__getitem__
        for _ in range(3):
            await describe(m)
        grants[node] = (AllowListEntry(node, orgs=((2, 2),)),)
        with pytest.raises(OpFailedError):
            await describe(m)
        grants[node] = (AllowListEntry(node),)
        assert await describe(m)


async def test_every_op_has_its_own_log_context() -> None:
    seen: list[bool] = []
    futures: list[DirectFuture[None]] = []

    async def note(context: OpContext, op: Probe) -> WireStruct:
        seen.append(CURRENT.get() is context)
        futures.append(DirectFuture())
        await futures[-1]
        seen.append(CURRENT.get() is context)
        return ProbeResp("1", 0)

    async with mesh({OpCode.PROBE: note}) as m:
        calls = [EagerTask(m.client.call(Probe(), org_id=1, deadline=5)) for _ in range(3)]
        await until(lambda: len(futures) == 3)
        for future in futures:
            future.set_result(None)
        assert CURRENT.get() is None
        await asyncio.gather(*calls)
        assert seen == [True] * 6


async def test_a_deadline_ends_a_handler_that_waits_directly() -> None:
    async def wait(context: OpContext, op: Probe) -> WireStruct:
        await DirectFuture[None]()
        return ProbeResp("1", 0)

    async with mesh({OpCode.PROBE: wait}) as m:
        (session,) = m.server.sessions
        call = EagerTask(m.client.call(Probe(), org_id=1, deadline=0.1))
        with pytest.raises((OutcomeUnknownError, OpFailedError)):
            await call
        await until(lambda: not session.running)
        assert m.client.counters().credit_used_bytes == 0


async def test_a_short_op_does_not_pass_a_long_one_of_its_lane() -> None:
    long = ProduceOps([*produce_of(b"x", topic="long").partitions] * 3_000)
    async with mesh() as m:
        calls = [
            EagerTask(m.client.call(op, org_id=1, deadline=30, lane=0))
            for op in (long, produce_of(b"x", topic="a"), long, produce_of(b"x", topic="b"))
        ]
        # Between the end of one encoding and the start of the next one, another op arrives.
        await asyncio.sleep(0.01)
        calls.append(
            EagerTask(m.client.call(produce_of(b"x", topic="c"), org_id=1, deadline=30, lane=0))
        )
        await asyncio.gather(*calls)
        order = list(dict.fromkeys(m.broker.started))
        assert order == ["long", "a", "b", "c"]
        assert m.broker.started[-2:] == ["b", "c"]
