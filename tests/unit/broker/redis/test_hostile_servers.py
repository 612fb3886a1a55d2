"""A hostile Redis costs its own topics errors, and the broker bounded memory and connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import repeat

import pytest

from quafka_broker.sources.redis.client import Client, ClientLimits, RedisAccess
from quafka_broker.sources.redis.clients import Clients
from quafka_loop import clock
from quafka_proto.errors import ErrorCode
from tests.unit.broker.redis.hostile_server import Answers, HostileServer, bulk, once
from tests.unit.broker.redis.tools import create, get, put, state_with

_MIB = 1 << 20


def endless(head: bytes, piece: bytes) -> Iterator[bytes]:
    yield head
    yield from repeat(piece)


_LAST = bulk(b"5-0")
_BOUNDS = once(b"*1\r\n*5\r\n" + bulk(b"1-0") + _LAST + b":2\r\n:2\r\n" + bulk(b"0-0"))


def entries(*ids: bytes) -> bytes:
    each = [b"*2\r\n" + bulk(i) + b"*2\r\n" + bulk(b"value") + bulk(b"x") for i in ids]
    return b"*%d\r\n" % len(ids) + b"".join(each)


_CASES: dict[str, tuple[Answers, bytes, bool]] = {
    "garbage": ({}, b"\xff\0garbage\r\n" * 20, False),
    "an error": ({b"": once(b"-ERR no\r\n")}, b"", False),
    **{
        error.split()[0]: ({b"EVALSHA": once(f"-{error}\r\n".encode())}, b"", True)
        for error in (
            "LOADING Redis is loading the dataset in memory",
            "NOAUTH Authentication required.",
            "MISCONF Redis is configured to save RDB snapshots, but it cannot.",
            "MOVED 3999 127.0.0.1:6381",
        )
    },
    "numbers": ({b"": once(b":7\r\n")}, b"", False),
    "numbers when connected": ({b"": once(b":7\r\n")}, b"", True),
    "nothing in a list": ({b"": once(b"*0\r\n")}, b"", True),
    "nil": ({b"": once(b"$-1\r\n")}, b"", True),
    "lists in lists": ({b"": once(b"*1\r\n" * 100_000)}, b"", True),
    "bounds of another kind": ({b"EVALSHA": once(b"*1\r\n*5\r\n" + b":-1\r\n" * 5)}, b"", True),
    "an endless string": (
        {b"": lambda: endless(b"$2000000000\r\n", b"x" * 65_536)}, b"", True,
    ),
    "an endless list": (
        {b"": lambda: endless(b"*2000000000\r\n", b":1\r\n" * 10_000)}, b"", True,
    ),
    "an endless list at once": (
        {b"": lambda: endless(b"*2000000000\r\n", b":1\r\n" * 10_000)}, b"", False,
    ),
    "a list behind a value like it": (
        {b"": lambda: endless(b"*2\r\n" + bulk(b"*9000000\r\n") + b"*9000000\r\n", b":1\r\n")},
        b"", True,
    ),
    "a byte at a time": ({b"": lambda: endless(b"$2000\r\n", b"x")}, b"", True),
    "entries of another kind": (
        {b"EVALSHA": _BOUNDS, b"XRANGE": once(b"*1\r\n*2\r\n:1\r\n:2\r\n")}, b"", True,
    ),
    "entries in another order": (
        {b"EVALSHA": _BOUNDS, b"XRANGE": once(entries(b"5-0", b"1-0"))}, b"", True,
    ),
    "entries again and again": (
        {b"EVALSHA": _BOUNDS, b"XRANGE": once(entries(*[b"1-0"] * 8))}, b"", True,
    ),
    "ids beyond all numbers": (
        {b"EVALSHA": once(b"*1\r\n*5\r\n" + bulk(b"9" * 40 + b"-0") * 2 + b":1\r\n:1\r\n" + _LAST)},
        b"", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", _CASES)
async def test_answers_that_redis_would_not_give(case: str) -> None:
    answers, greeting, polite = _CASES[case]
    async with (
        HostileServer(answers, greeting, polite=polite) as server,
        state_with(server.address, timeout_ms=200, answer_bytes=_MIB) as state,
    ):
        source = f"redis://{server.address}/0?stream=s"
        assert (await create(state, source)).error_code == 0
        assert (await create(state, "", "ours")).error_code == 0
        began = clock.perf_counter()
        fetching, producing = (
            asyncio.create_task(get(state, 0, 500)),
            asyncio.create_task(put(state, b"x", producer=(7, 0, 0))),
        )
        slowest = 0.0
        for _ in range(20):  # the bystander
            at = clock.thread_time()  # of all that runs on the loop meanwhile
            assert (await put(state, b"y", name="ours")).error_code == 0
            slowest = max(slowest, clock.thread_time() - at)
            await asyncio.sleep(0.01)
        fetched, produced = await asyncio.wait_for(asyncio.gather(fetching, producing), 10)
        assert clock.perf_counter() - began < 15
        assert slowest < 0.5
        assert fetched.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert produced.error_code in (
            ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        )  # fmt: skip
        assert server.commands < 200  # attempts pause
        assert server.connections <= 6
        assert server.sent < 150 * _MIB  # with what was in the sockets' buffers
    assert not server.connections


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_closed_client_leaves_no_connection(turns: int, cancelled: bool) -> None:
    async with HostileServer({}) as server:
        access = RedisAccess(0, False, None, None, None)
        one, two, three = (Client(server.address, access, ClientLimits(1, 100), 1) for _ in "123")
        clients = Clients(one, two, three)
        calls = [asyncio.create_task(client.call("PING")) for client in (one, two, three)]
        for _ in range(turns):  # while the connections are being opened
            await asyncio.sleep(0)
        closing = asyncio.create_task(clients.close())
        await asyncio.sleep(0)
        if cancelled:
            closing.cancel()
        await asyncio.gather(closing, *calls, return_exceptions=True)
        async with asyncio.timeout(5):
            while server.connections:
                await asyncio.sleep(0.01)


async def test_an_org_uses_so_many_servers_at_a_time() -> None:
    async with (
        HostileServer({}) as one, HostileServer({}) as two,
        state_with(one.address, two.address, servers_per_org=2, timeout_ms=200) as state,
    ):  # fmt: skip
        for n in range(2):
            created = await create(state, f"redis://{one.address}/{n}?stream=s", f"t{n}")
            assert created.error_code == 0
            await get(state, 0, 300, name=f"t{n}")
        created = await create(state, f"redis://{two.address}/0?stream=s", "t2")
        assert created.error_code == ErrorCode.INVALID_CONFIG
        assert "sources.redis.servers.per.org" in created.error_message
        assert not two.commands
