"""Large ops in shared memory: they arrive whole and in order, and liars lose their connection."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from quafka_mesh_ops import descriptors, gateway_session
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.envelopes import encode_body, encode_request
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError
from quafka_mesh_ops.frames import Tag, encode_number, encode_placed, frame_header
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.memory import handover, offer, shared
from quafka_mesh_ops.memory.handover import TOKEN_SIZE
from quafka_mesh_ops.memory.shared import LEAST_BYTES, MEMORY_BYTES, MOST_BYTES, SharedMemory
from quafka_mesh_ops.ops.base import OpCode, WireStruct
from quafka_mesh_ops.ops.memory import OpenMemory, OpenMemoryResp
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.ops.topics import DescribeTopics
from tests.unit.mesh_ops.mesh import Mesh, in_memory, mesh, produce_of
from tests.unit.mesh_ops.op_fillers import filled
from tests.unit.mesh_ops.raw_quic import RawClient, credentials, raw_client
from tests.unit.mesh_ops.test_every_op import echo

LANE_1 = 4
"""The id of the first lane's stream."""
INVALID_REQUEST = 42


async def send(client: MeshClient, records: bytes, topic: str = "orders", lane: int = 0) -> int:
    """The length of the records, as the broker has received them."""
    op = produce_of(records, topic)
    answer = await client.call(op, org_id=1, deadline=10, lane=lane)
    return answer.partitions[0].base_offset


def areas(client: MeshClient) -> int:
    """The frames that may still be unread."""
    session = client._connector.session
    assert session is not None
    assert session.memory is not None
    return session.memory._areas.taken


# --- ops that lie in memory -----------------------------------------------------------------


async def test_large_ops_lie_in_memory_and_keep_the_order_of_their_lane() -> None:
    async with mesh(memory=True) as m:
        await in_memory(m)
        before = m.client.counters().memory_bytes
        sizes = [LEAST_BYTES + 1, 10, MOST_BYTES, 1 << 20, 0, MOST_BYTES - 1_000, 500_000]
        calls = [send(m.client, bytes(size), str(size)) for size in sizes]
        assert await asyncio.gather(*calls) == sizes
        assert m.broker.started == [str(size) for size in sizes]
        placed = m.client.counters().memory_bytes - before
        expected = sum(size for size in sizes if LEAST_BYTES <= size < MOST_BYTES)
        assert expected <= placed < expected + 1_000
        (counted,) = m.server.counters()
        assert counted.memory_bytes == m.client.counters().memory_bytes
        assert not areas(m.client)


async def test_ops_beyond_the_memory_travel_in_packets() -> None:
    async with mesh(memory=True) as m:
        await in_memory(m)
        sizes = [2_000_000] * 40
        assert await asyncio.gather(*[send(m.client, bytes(size)) for size in sizes]) == sizes
        assert not areas(m.client)


async def test_ops_of_several_orgs_lie_there_and_longer_ones_travel_in_pieces() -> None:
    async with mesh(memory=True) as m:
        await in_memory(m)
        m.client._turns.shared = True
        sizes = [3_000_000, 100, 100_000, 30_000, 5_000_000, 1_000_000] * 3
        calls = [
            m.client.call(produce_of(bytes(size)), org_id=1 + number % 4, deadline=30, lane=0)
            for number, size in enumerate(sizes)
        ]
        answers = await asyncio.gather(*calls)
        assert [each.partitions[0].base_offset for each in answers] == sizes
        assert not areas(m.client)
        assert m.client._connector.connections == 1


async def test_a_cancelled_op_gives_its_area_back() -> None:
    async with mesh(memory=True) as m:
        await in_memory(m)
        task = asyncio.ensure_future(send(m.client, bytes(100_000)))
        await asyncio.sleep(0)
        assert areas(m.client) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert areas(m.client) == 1  # the broker may not have read it
        assert await send(m.client, bytes(50_000)) == 50_000
        assert not areas(m.client)


async def test_cancelled_ops_without_an_answer_give_their_areas_back_by_the_next_ping() -> None:
    parked = asyncio.Event()

    async def park(context: OpContext, op: DescribeTopics) -> WireStruct:
        parked.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async with mesh({OpCode.DESCRIBE_TOPICS: park}, memory=True) as m:
        await in_memory(m)
        op = DescribeTopics(["x" * 100_000])
        task = asyncio.ensure_future(m.client.call(op, org_id=1, deadline=30))
        await asyncio.wait_for(parked.wait(), 10)
        assert areas(m.client) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(10):
            while areas(m.client):
                await asyncio.sleep(0.05)


def test_an_answer_shows_that_earlier_frames_of_its_stream_were_read() -> None:
    memory = SharedMemory()
    try:
        for request_id, stream in ((5, 1), (9, 1), (6, 2), (7, 1)):
            assert memory.place(stream, request_id, [bytes(100)], 100)
        for answered, left in ((8, 4), (9, 2), (5, 2), (6, 1), (7, 0)):
            memory.answered(answered)
            assert memory._areas.taken == left
    finally:
        memory.close()


def test_unused_memory_returns_to_the_system() -> None:
    memory = SharedMemory()
    try:
        memory.place(0, 1, [bytes(500_000), b"x" * 500_000], 1_000_000)
        memory.trim()  # something lies in it
        assert os.fstat(memory._fd).st_blocks * 512 >= 1_000_000
        memory.answered(1)
        memory.answered(1)  # an answer to another op
        memory.trim()
        found = os.fstat(memory._fd)
        assert (found.st_blocks, found.st_size) == (0, MEMORY_BYTES)
    finally:
        memory.close()


async def test_either_side_may_do_without() -> None:
    for gateway, broker in ((True, False), (False, True)):
        async with mesh(memory=broker) as m:
            client = MeshClient(
                "127.0.0.1", m.port, m.client_identity, {m.server_identity.node_id},
                m.client._tracer, memory=gateway,
            )  # fmt: skip
            await client.start()
            try:
                assert await client.wait_connected(30)
                for _ in range(3):
                    assert await send(client, bytes(100_000)) == 100_000
                counters = client.counters()
                assert (counters.memory_shared, counters.memory_bytes) == (False, 0)
            finally:
                await client.close()


async def test_a_new_connection_has_memory_of_its_own() -> None:
    async with mesh(memory=True) as m:
        await in_memory(m)
        lost = asyncio.ensure_future(send(m.client, bytes(100_000)))
        await asyncio.sleep(0)
        for session in list(m.server.sessions):
            session.connection.close("a test")
        with pytest.raises(OutcomeUnknownError):
            await lost
        assert await m.client.wait_connected(30)
        await in_memory(m)
        assert await send(m.client, bytes(200_000)) == 200_000
        memory = m.client._connector.session.memory  # type: ignore[union-attr]
        assert memory is not None
        await m.client.close()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(memory._fd)


async def test_a_gateway_that_cannot_make_memory_sends_packets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", fail)
    async with mesh(memory=True) as m:
        for _ in range(3):
            assert await send(m.client, bytes(100_000)) == 100_000
        assert not m.client.counters().memory_shared


# --- liars ----------------------------------------------------------------------------------


@asynccontextmanager
async def peer(m: Mesh) -> AsyncIterator[RawClient]:
    """A gateway with the right key that sends what a test chooses."""
    async with raw_client(m.port, credentials(m.client_identity)) as client:
        yield client


@contextmanager
def a_memory(content: bytes = b"", size: int = MEMORY_BYTES) -> Iterator[tuple[int, int]]:
    """Two descriptors of memory with this content: for writing, and for reading only."""
    fd = os.memfd_create("test")
    try:
        os.ftruncate(fd, size)
        os.pwrite(fd, content, 0)
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        try:
            yield fd, readable
        finally:
            os.close(readable)
    finally:
        os.close(fd)


async def open_memory(client: MeshClient) -> OpenMemoryResp:
    return await client.call(OpenMemory(), org_id=1, deadline=5)


async def received(connection: socket.socket) -> bytes | None:
    """What the broker answers; None: it has closed the connection."""
    connection.setblocking(False)
    async with asyncio.timeout(10):
        return await asyncio.get_running_loop().sock_recv(connection, 100) or None


async def hand_over(answer: OpenMemoryResp, fds: list[int], token: bytes = b"") -> bytes | None:
    connection = handover.connect(answer.name)
    assert connection is not None
    with connection:
        socket.send_fds(connection, [b"QFKM\x01" + (token or answer.token)], fds)
        return await received(connection)


def request(body: bytes = b"") -> bytes:
    """An OP frame that the broker understands."""
    op = DescribeTopics([body.decode()])
    return b"".join(encode_request(7, op.code, 1, "", "", 5_000, encode_body(op)))


async def test_memory_is_taken_once() -> None:
    async with mesh(memory=True) as m:
        answer = await open_memory(m.client)
        with pytest.raises(OpFailedError) as again:
            await open_memory(m.client)
        assert again.value.error_code == INVALID_REQUEST
        with a_memory() as (_, readable):
            assert await hand_over(answer, [readable]) == b"\x01"
            with pytest.raises(OSError, match="refused"):
                handover.connect(answer.name)
        assert m.server.counters()[0].memory_shared
        with pytest.raises(OpFailedError):
            await open_memory(m.client)


def a_pipe() -> list[int]:
    return list(os.pipe())


def a_file() -> list[int]:
    return [os.open(__file__, os.O_RDONLY)]


def a_writable_memory() -> list[int]:
    return [os.memfd_create("test")]


@pytest.mark.parametrize("make", [a_pipe, a_file, a_writable_memory, list[int]])
async def test_what_is_not_readable_memory_is_refused(make: Callable[[], list[int]]) -> None:
    """Reading a pipe or a file on a disk would hold the event loop up."""
    async with mesh(memory=True) as m:
        fds = make()
        try:
            assert await hand_over(await open_memory(m.client), fds) is None
        finally:
            descriptors.close_all(fds)
        assert not m.server.counters()[0].memory_shared
        assert await send(m.client, bytes(100_000)) == 100_000


async def test_a_wrong_token_ends_the_offer() -> None:
    async with mesh(memory=True) as m:
        answer = await open_memory(m.client)
        with a_memory() as (_, readable):
            assert await hand_over(answer, [readable], token=bytes(TOKEN_SIZE)) is None
        assert not m.server.counters()[0].memory_shared
        await open_memory(m.client)  # there may be another


async def test_an_offer_that_nobody_takes_ends() -> None:
    async with mesh(memory=True) as m:
        answer = await open_memory(m.client)
        connection = handover.connect(answer.name)
        assert connection is not None
        (session,) = m.server.sessions
        timer = session._memory._timer
        assert timer is not None
        assert timer.when() <= asyncio.get_running_loop().time() + offer.OFFER_SECONDS
        with connection:
            while len(session._memory._sockets) < 2:  # it has not been accepted
                await asyncio.sleep(0)
            timer._run()
            assert await received(connection) is None


async def test_an_offer_ends_with_its_connection() -> None:
    async with mesh(memory=True) as m:
        answer = await open_memory(m.client)
        await m.client.close()
        async with asyncio.timeout(5):
            while m.server.sessions:
                await asyncio.sleep(0.005)
        with pytest.raises(OSError, match="refused"):
            handover.connect(answer.name)


async def test_another_users_process_is_not_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mesh(memory=True) as m:
        answer = await open_memory(m.client)
        with monkeypatch.context() as patch:
            patch.setattr(descriptors, "same_user", lambda _socket: False)
            assert handover.connect(answer.name) is None
            await asyncio.sleep(0.01)
        with a_memory() as (_, readable):  # the offer still stands
            assert await hand_over(answer, [readable]) == b"\x01"


def test_a_gateway_connects_to_no_other_name(tmp_path: Path) -> None:
    for name in (b"", str(tmp_path / "socket").encode(), b"\0other"):
        with pytest.raises(OSError, match="not a name"):
            handover.connect(name)


@asynccontextmanager
async def liar(content: bytes, size: int = MEMORY_BYTES) -> AsyncIterator[tuple[Mesh, RawClient]]:
    """A peer with memory of this content, and a bystander."""
    async with mesh(memory=True) as m, peer(m) as client:
        op = OpenMemory()
        client.send(0, b"".join(encode_request(1, op.code, 1, "", "", 5_000, encode_body(op))))
        async with asyncio.timeout(10):
            await client.data.wait()
        found = next(s for s in m.server.sessions if s._memory._sockets)
        with a_memory(content, size) as (_, readable):
            found._memory._fd = os.dup(readable)
            found._memory._withdraw()
            yield m, client


GOOD = request()
FRAMES = {
    "no position": frame_header(Tag.PLACED, 1) + b"\x91",
    "not numbers": frame_header(Tag.PLACED, 3) + b"\x92\xc3\xc2",
    "nothing": encode_placed(0, 0),
    "before the memory": encode_placed(-1, len(GOOD)),
    "behind the memory": encode_placed(MEMORY_BYTES, len(GOOD)),
    "far behind it": encode_placed(1 << 60, len(GOOD)),
    "over its end": encode_placed(MEMORY_BYTES - 4, len(GOOD)),
    "too long": encode_placed(0, MOST_BYTES + 1),
    "cut short": encode_placed(0, len(GOOD) - 1),
    "with something behind": encode_placed(0, len(GOOD) + 1),
    "not an op": encode_placed(100_000, len(encode_number(Tag.PING, 1))),
    "a frame of a frame": encode_placed(200_000, len(encode_placed(0, len(GOOD)))),
}
CONTENT = bytearray(300_000)
CONTENT[: len(GOOD)] = GOOD
CONTENT[100_000:100_003] = encode_number(Tag.PING, 1)
CONTENT[200_000 : 200_000 + len(encode_placed(0, len(GOOD)))] = encode_placed(0, len(GOOD))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
async def test_a_peer_that_names_no_op_in_its_memory_loses_its_connection(frame: bytes) -> None:
    async with liar(bytes(CONTENT)) as (m, client):
        client.send(0, encode_placed(0, len(GOOD)))  # a good one, which is answered
        client.data.clear()
        async with asyncio.timeout(10):
            await client.data.wait()
        assert client.closed_with is None
        client.send(LANE_1, frame)
        async with asyncio.timeout(10):
            await client.end.wait()
        assert await send(m.client, bytes(100_000)) == 100_000
        assert m.client.counters().reconnects == 0


async def test_memory_that_shrinks_costs_its_owner_the_connection() -> None:
    async with liar(bytes(CONTENT), size=100) as (m, client):
        client.send(LANE_1, encode_placed(0, 4_096))
        async with asyncio.timeout(10):
            await client.end.wait()
        assert await send(m.client, b"x") == 1


async def test_frames_without_memory_cost_the_connection() -> None:
    async with mesh(memory=True) as m, peer(m) as client:
        client.send(LANE_1, encode_placed(0, 10))
        async with asyncio.timeout(10):
            await client.end.wait()
        assert await send(m.client, b"x") == 1


@pytest.mark.parametrize("limit", ["in one turn", "unanswered"])
async def test_one_area_named_again_and_again_is_not_read_without_end(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of a few bytes makes the broker read megabytes, so their sum has a bound."""
    name, most = {
        "in one turn": ("MEMORY_BYTES", 50 * len(GOOD)),
        "unanswered": ("MAX_REQUEST_BYTES", 50 * len(GOOD)),
    }[limit]
    async with liar(bytes(CONTENT)) as (m, client):
        monkeypatch.setattr(gateway_session, name, most)
        client.send(LANE_1, encode_placed(0, len(GOOD)) * 60)
        async with asyncio.timeout(10):
            await client.end.wait()
        assert sum(session._memory.read_bytes for session in m.server.sessions) <= 52 * len(GOOD)


def test_the_memory_holds_what_credit_allows() -> None:
    """A few of the largest ops, so that one of them does not push all others into packets."""
    assert shared.MEMORY_BYTES >= 8 * shared.MOST_BYTES


async def test_every_large_op_lies_whole_in_memory() -> None:
    async with echo(memory=True) as e:
        for op_type in OPS.values():
            for _, op, _ in filled(op_type, 64 << 10, many=False):
                if op_type is not OpenMemory:
                    before = e.client.counters().memory_bytes
                    await e.send(op)
                    assert e.client.counters().memory_bytes > before + (64 << 10)
