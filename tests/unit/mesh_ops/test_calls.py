"""Calls over a live pair: answers, order, deadlines, cancellation, loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise

import pytest

from quafka_loop import clock
from quafka_mesh_ops import broker_session, connector, op_runner
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.frames import Tag
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.base import AnyOp, Buffer, OpCode, OpKind, WireStruct
from quafka_mesh_ops.ops.groups import JoinGroup, JoinGroupResp
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    InitProducerId,
    ProduceOp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.topics import CreateTopic, DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.scheduler import BOUNDS, Bounds
from quafka_mesh_ops.server import MeshServer
from quafka_telemetry.tracing import Tracer
from tests.support.garbage import searched
from tests.support.suites import more
from tests.unit.mesh_ops.mesh import Broker, fetch_of, mesh, new_identity, produce_of

PARK = DescribeTopics(["park"])


async def test_a_call_is_answered() -> None:
    async with mesh() as m:
        answer = await m.client.call(DescribeTopics(), org_id=1, deadline=2)
        assert answer == DescribeTopicsResp("cluster", [])


async def test_calls_leave_nothing_to_the_search_for_garbage() -> None:
    async with mesh() as m:
        await m.client.call(produce_of(b"warm"), org_id=1, deadline=2)
        with searched() as garbage:
            await m.client.call(produce_of(b"records"), org_id=1, deadline=2)
            await m.client.call(fetch_of(100), org_id=1, deadline=2)
            await m.client.call(DescribeTopics(), org_id=1, deadline=2)
            await asyncio.sleep(0.05)  # acknowledgements
        assert garbage == []


async def test_a_long_op_cancelled_while_it_is_read_leaves_nothing_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = asyncio.Event()

    async def wait(_: object) -> None:
        reading.set()
        await asyncio.get_running_loop().create_future()

    async with mesh() as m:
        await m.client.call(produce_of(b"warm"), org_id=1, deadline=2)
        monkeypatch.setattr(op_runner, "in_slices", wait)
        with searched() as garbage:
            op = DescribeTopics(["topic"] * 20_000)
            call = asyncio.create_task(m.client.call(op, org_id=1, deadline=20))
            await reading.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            del call
            await asyncio.sleep(0.05)
        assert garbage == []


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("datagram_size", [None, 1452, *more([16_000, 1200])])
async def test_large_bodies_both_ways(datagram_size: int | None, batched: bool) -> None:
    size = (8 << 20) + 3
    async with mesh(datagram_size=datagram_size, batched=batched) as m:
        fetched = await m.client.call(fetch_of(size), org_id=1, deadline=20)
        assert fetched.partitions[0].records[0] == bytes(size)
        stored = await m.client.call(produce_of(bytes(size)), org_id=1, deadline=20, lane=3)
        assert stored.partitions[0].base_offset == size


async def test_the_handler_is_told_who_asks_and_until_when() -> None:
    seen: list[OpContext] = []

    async def note(context: OpContext, op: DescribeTopics) -> WireStruct:
        seen.append(context)
        return DescribeTopicsResp("c", [])

    async with mesh({OpCode.DESCRIBE_TOPICS: note}) as m:
        await m.client.call(DescribeTopics(), org_id=42, deadline=60)
        assert seen[0].org_id == 42
        assert seen[0].peer == m.client_identity.node_id
        assert 30 < seen[0].deadline - asyncio.get_running_loop().time() <= 60
        assert seen[0].trace is None


async def test_errors_of_handlers(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(context: OpContext, op: WireStruct) -> WireStruct:
        raise OpFailedError(41)

    async def crash(context: OpContext, op: WireStruct) -> WireStruct:
        raise TimeoutError("of its own")

    async def answer_nonsense(context: OpContext, op: WireStruct) -> WireStruct:
        return DescribeTopicsResp(1 << 70, [])  # type: ignore[arg-type]

    handlers = {
        OpCode.CREATE_TOPIC: refuse,
        OpCode.FETCH: crash,
        OpCode.DESCRIBE_TOPICS: answer_nonsense,
    }
    async with mesh(handlers) as m:
        for op, code in (
            (CreateTopic("t"), 41),
            (fetch_of(1), -1),
            (DescribeTopics(), -1),
            (InitProducerId(), 35),
        ):
            with pytest.raises(OpFailedError) as failed:
                await m.client.call(op, org_id=1, deadline=2)
            assert failed.value.error_code == code
    assert sum(r.levelno == logging.ERROR for r in caplog.records) == 2


async def test_ops_of_a_lane_arrive_in_order_whatever_their_size() -> None:
    async with mesh() as m:
        names = [f"{i:03}" for i in range(60)]
        await asyncio.gather(
            *[
                m.client.call(
                    produce_of(bytes(300_000 if i % 7 == 0 else 10), topic=name),
                    org_id=1,
                    deadline=10,
                    lane=5,
                )
                for i, name in enumerate(names)
            ]
        )
        assert m.broker.started == names


async def test_ops_keep_their_order_while_they_wait_for_a_connection() -> None:
    broker, ours, theirs = Broker(), new_identity(), new_identity()
    server = MeshServer(theirs, {ours.node_id}, broker.handlers(), Tracer())
    _, port = await server.start("127.0.0.1", 0)
    await server.close(0)
    client = MeshClient("127.0.0.1", port, ours, {theirs.node_id}, Tracer())
    await client.start()
    names = [f"{i:03}" for i in range(50)]
    calls = asyncio.gather(
        *[client.call(produce_of(b"x", topic=n), org_id=1, deadline=5, lane=0) for n in names]
    )
    await asyncio.sleep(0.1)
    again = MeshServer(theirs, {ours.node_id}, broker.handlers(), Tracer())
    await again.start("127.0.0.1", port)
    await calls
    assert broker.started == names
    await client.close()
    await again.close(0)


async def test_a_cancelled_call_cancels_its_handler() -> None:
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=5))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: m.broker.cancelled == ["park"])
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=2)


async def test_a_passed_deadline_leaves_the_outcome_open_and_ends_the_handler() -> None:
    async with mesh() as m:
        start = clock.monotonic()
        with pytest.raises((OutcomeUnknownError, OpFailedError)):
            await m.client.call(PARK, org_id=1, deadline=0.1)
        assert clock.monotonic() - start < 20
        await until(lambda: m.broker.cancelled == ["park"])


async def test_without_a_broker_nothing_is_sent() -> None:
    client = MeshClient("127.0.0.1", 9, new_identity(), set(), Tracer())
    await client.start()
    with pytest.raises(PeerUnavailableError):
        await client.call(DescribeTopics(), org_id=1, deadline=0.1)
    assert not await client.wait_connected(0.05)
    await client.close()
    with pytest.raises(PeerUnavailableError):
        await client.call(DescribeTopics(), org_id=1, deadline=5)


async def test_a_call_without_an_answer_leaves_no_garbage() -> None:
    """A circle of error and call would hold the op, of up to 100 MB, until the next search."""
    async with mesh() as m:
        with searched() as found:
            with pytest.raises(OutcomeUnknownError):
                await m.client.call(PARK, org_id=1, deadline=0.1)
            await asyncio.sleep(1)
        assert found == []


async def test_close_fails_the_calls_that_are_left() -> None:
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=5))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        await m.client.close()
        with pytest.raises(OutcomeUnknownError):
            await call


async def test_a_killed_broker_is_noticed_at_once_and_its_successor_found() -> None:
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=5))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        await asyncio.sleep(0.3)  # until only the parked op is in flight
        killed = clock.monotonic()
        m.server._listener.close()  # the socket is closed without a close frame
        with pytest.raises(OutcomeUnknownError, match="connection was lost"):
            await call
        assert clock.monotonic() - killed < broker_session.SILENT_SECONDS / 2
        assert not m.client.connected
        ours, theirs = m.client_identity, m.server_identity
        successor = MeshServer(theirs, {ours.node_id}, m.broker.handlers(), Tracer())
        await successor.start("127.0.0.1", m.port)
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=3)
        await successor.close(0)


async def test_a_broker_that_was_restarted_on_its_port_says_so() -> None:
    """The port is open, and the successor does not know the old connection: without a stateless
    reset only the silence would reveal the restart."""
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=5))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        killed = clock.monotonic()
        m.server._listener.close()
        ours, theirs = m.client_identity, m.server_identity
        successor = MeshServer(theirs, {ours.node_id}, m.broker.handlers(), Tracer())
        await successor.start("127.0.0.1", m.port)
        with pytest.raises(OutcomeUnknownError, match="has restarted"):
            await call
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=3)
        assert clock.monotonic() - killed < broker_session.SILENT_SECONDS
        await successor.close(0)


async def test_a_silent_broker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_session, "SILENT_SECONDS", 0.3)
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=5))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        udp = m.server._listener._udp
        assert udp is not None
        udp._loop.remove_reader(udp._sock.fileno())  # alive, but receives nothing
        with pytest.raises(OutcomeUnknownError, match="no sign of life"):
            await call


async def test_a_lost_client_cancels_its_handlers() -> None:
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=5))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        await m.client.close()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: m.broker.cancelled == ["park"])
        assert not m.server.sessions


async def test_a_closing_broker_finishes_what_it_has_begun() -> None:
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=5))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        closing = asyncio.ensure_future(m.server.close(drain=60))
        await until(lambda: not m.client.connected)
        m.broker.release.set()
        assert await call == DescribeTopicsResp("cluster", [])
        await asyncio.wait_for(closing, 30)
        with pytest.raises(PeerUnavailableError):
            await m.client.call(DescribeTopics(), org_id=1, deadline=0.1)


async def test_a_broker_that_stops_is_a_warning_only_if_it_stays_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "quafka.mesh.client")

    def levels() -> list[str]:
        lines = [each for each in caplog.records if "no connection" in each.message]
        return list(dict.fromkeys(each.levelname for each in lines))

    async with mesh() as m:
        assert await m.client.wait_connected(5)
        await m.server.close(drain=1)
        await asyncio.sleep(2)
        assert levels() == ["INFO"]
        await asyncio.sleep(5)
        assert levels() == ["INFO", "WARNING"]


async def test_the_byte_budget_lets_calls_through_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, OpKind.RECORDS, Bounds(2_048, 5_600, 5_600))
    most, running, seconds = 0, 0, 0.005

    async def produce(context: OpContext, op: WireStruct) -> WireStruct:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(seconds)
        running -= 1
        return ProduceOpsResp([])

    async with mesh({OpCode.PRODUCE: produce}) as m:
        sizes = [400, 400, 5000, 400, 400]
        await asyncio.gather(
            *[m.client.call(produce_of(bytes(s)), org_id=1, deadline=5) for s in sizes]
        )
        assert most == 2
        # An op that must wait for the budget and runs out of time was never sent.
        seconds = 0.2
        big = asyncio.ensure_future(m.client.call(produce_of(bytes(5000)), org_id=1, deadline=5))
        await asyncio.sleep(0)
        with pytest.raises(PeerUnavailableError):
            await m.client.call(produce_of(bytes(100)), org_id=1, deadline=0.0)
        await big
        assert m.client.counters().credit_used_bytes == 0


async def test_small_ops_pass_fetches_that_wait_for_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BOUNDS, OpKind.FETCHES, Bounds(2_048, 6_300, 6_300))
    arrived: list[int] = []
    release = asyncio.Event()

    async def park(context: OpContext, op: FetchOps) -> WireStruct:
        arrived.append(len(op.partitions))
        await release.wait()
        return FetchOpsResp([FetchOpResp([], 0)] * len(op.partitions))

    async with mesh({OpCode.FETCH: park}) as m:
        ops = [FetchOps([FetchOp("t", n, 0, 1) for n in range(count)]) for count in (9, 1, 2, 1)]
        calls = [asyncio.ensure_future(m.client.call(op, org_id=1, deadline=20)) for op in ops]
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=10)
        async with asyncio.timeout(5):
            while not arrived:
                await asyncio.sleep(0)
        assert arrived == [9]
        release.set()
        await asyncio.gather(*calls)
        assert arrived == [9, 1, 2, 1]


async def test_small_ops_pass_members_that_wait_for_each_other() -> None:
    waiting, release = [0], asyncio.Event()

    async def park(context: OpContext, op: JoinGroup) -> WireStruct:
        waiting[0] += 1
        await release.wait()
        return JoinGroupResp()

    async with mesh({OpCode.JOIN_GROUP: park}) as m:
        join = JoinGroup("g", "", "", "consumer", [], 10_000, 10_000)
        joins = [
            asyncio.ensure_future(m.client.call(join, org_id=1, deadline=20)) for _ in range(3_000)
        ]
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=10)
        async with asyncio.timeout(10):
            while waiting[0] < len(joins):
                await asyncio.sleep(0)
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=10)
        release.set()
        await asyncio.gather(*joins)


async def test_parked_calls_take_no_part_of_the_budget() -> None:
    async with mesh() as m:
        parked = [
            asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=60)) for _ in range(500)
        ]
        await asyncio.wait_for(m.broker.parked.wait(), 10)
        assert await m.client.call(produce_of(bytes(70 << 20)), org_id=1, deadline=60, lane=0)
        m.broker.release.set()
        await asyncio.gather(*parked)


async def test_many_bulk_replies_share_the_connection_and_small_ones_pass_them() -> None:
    async with mesh() as m:
        bulk = [
            asyncio.ensure_future(m.client.call(fetch_of(1 << 20), org_id=1, deadline=20))
            for _ in range(60)
        ]
        await asyncio.sleep(0)
        await m.client.call(DescribeTopics(), org_id=1, deadline=5)
        assert not all(call.done() for call in bulk)
        for answer in await asyncio.gather(*bulk):
            assert len(answer.partitions[0].records[0]) == 1 << 20
        (session,) = m.server.sessions
        await until(lambda: not session.busy)


async def test_cancelled_bulk_replies_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_runner, "_REPLY_BACKLOG", 1 << 30)
    async with mesh() as m:
        calls = [
            asyncio.ensure_future(m.client.call(fetch_of(16 << 20), org_id=1, deadline=20))
            for _ in range(16)
        ]
        (session,) = m.server.sessions
        while session._ops._replies.backlog <= 200 << 20:
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        # Cancelling all of them would take a second.
        await until(lambda: not session.busy, 0.3)
        assert await m.client.call(fetch_of(100_000), org_id=1, deadline=2)


async def test_fetches_wait_for_a_peer_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_runner, "_REPLY_BACKLOG", 1 << 20)
    async with mesh() as m:
        done: list[str] = []

        async def note(name: str, op: AnyOp) -> None:
            await m.client.call(op, org_id=1, deadline=20)
            done.append(name)

        (session,) = m.server.sessions
        large = asyncio.ensure_future(note("large", fetch_of(32 << 20)))
        while session._ops._replies.backlog <= 1 << 20:
            await asyncio.sleep(0)
        await asyncio.gather(note("fetch", fetch_of(1)), note("other", DescribeTopics()), large)
        assert done == ["other", "large", "fetch"]


async def until(condition: Callable[[], bool], seconds: float = 2.0) -> None:
    """Wait until the condition holds."""
    end = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.005)


async def test_attempts_to_connect_become_fewer_and_are_not_in_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Delays grow even if each connection succeeds and ends at once."""
    monkeypatch.setattr(connector, "_FIRST_DELAY", 0.002)
    monkeypatch.setattr(connector, "_LONGEST_DELAY", 0.1)
    attempts: list[list[float]] = [[], []]

    async def attempt(self: connector.BrokerConnector) -> tuple[bool, str, bool]:
        (number,) = [at for at, client in enumerate(clients) if client._connector is self]
        attempts[number].append(clock.monotonic())
        return number == 1, "gone again", False

    monkeypatch.setattr(connector.BrokerConnector, "_connect_once", attempt)
    clients = [
        MeshClient("127.0.0.1", 1, new_identity(), {new_identity().node_id}, Tracer())
        for _ in attempts
    ]
    for client in clients:
        await client.start()
    await until(lambda: min(map(len, attempts)) >= 16)
    for client in clients:
        await client.close()
    for made in attempts:
        gaps = [after - before for before, after in pairwise(made)]
        assert gaps[0] < 0.05  # the first retry comes at once
        late = gaps[8:]
        assert all(gap >= 0.05 for gap in late)
        assert max(late) - min(late) > 0.005


@pytest.mark.parametrize("large", [False, True])
async def test_an_op_that_is_cancelled_at_once_leaves_nothing_behind(large: bool) -> None:
    """Its CANCEL reaches the broker together with the op, before the task has begun."""
    op = ProduceOps([ProduceOp("t" * 20, 0, b"x")] * 20_000) if large else PARK
    lane = 3 if large else None
    async with mesh() as m:
        (session,) = m.server.sessions
        act, cancelled = session._act, 0

        def cancel_as_well(stream_id: int, tag: Tag, payload: Buffer) -> None:
            nonlocal cancelled
            act(stream_id, tag, payload)
            if tag is Tag.OP:
                for request_id in list(session.running):
                    session._ops.cancel(request_id)
                    cancelled += 1

        session._act = cancel_as_well  # type: ignore[method-assign]
        call = asyncio.ensure_future(m.client.call(op, org_id=1, deadline=60, lane=lane))
        async with asyncio.timeout(20):
            while not cancelled or session.counters().ops or session.counters().credit_used_bytes:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert cancelled == 1
        assert not call.done()
        session._act = act  # type: ignore[method-assign]
        call.cancel()
        await asyncio.wait([call])
        answer = await m.client.call(produce_of(b"abc"), org_id=1, deadline=5, lane=lane or 1)
        assert answer.partitions[0].base_offset == 3
