"""The operations port: its pages, and its limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quafka_telemetry import operations as module
from quafka_telemetry.operations import Operations, PageReply, PageRequest
from quafka_telemetry.startup import StartupError
from tests.support.http_pages import fetch

Problems = dict[str, str]


@asynccontextmanager
async def serving(problems: Problems) -> AsyncIterator[tuple[Operations, int]]:
    operations = Operations(lambda: problems)
    _, port = await operations.start("127.0.0.1", 0)
    try:
        yield operations, port
    finally:
        await operations.close()


async def get(port: int, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    page = await fetch("127.0.0.1", port, path, method)
    return page.status, page.kind, page.body


async def raw(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()
    return answer


async def test_ready_names_every_problem_and_live_does_not_care() -> None:
    problems: Problems = {}
    async with serving(problems) as (_, port):
        status, kind, body = await get(port, "/readyz")
        assert (status, kind) == (200, "application/json")
        assert json.loads(body) == {"ready": True, "problems": {}}
        problems["log"] = "no space left on device"
        status, _, body = await get(port, "/readyz?verbose")
        assert (status, json.loads(body)["problems"]) == (503, problems)
        assert await get(port, "/livez") == (200, "text/plain; charset=utf-8", b"ok\n")


async def test_pages_can_be_added_and_fail_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def page(_asked: PageRequest) -> PageReply:
        return PageReply(b"<p>", "text/html")

    async def broken(_asked: PageRequest) -> PageReply:
        raise ValueError("a mistake")

    async with serving({}) as (operations, port):
        operations.add("/statusz", page)
        operations.add("/broken", broken)
        assert await get(port, "/statusz") == (200, "text/html", b"<p>")
        assert (await get(port, "/broken"))[0] == 500
        assert "a mistake" in caplog.text
        assert (await get(port, "/nowhere"))[0] == 404
        assert (await get(port, "/statusz", "POST"))[0] == 405
        assert await get(port, "/statusz", "HEAD") == (200, "text/html", b"")


@pytest.mark.parametrize(
    "request_bytes",
    [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 20_000],
    ids=["TLS", "no host", "endless"],
)
async def test_what_is_not_http_is_refused(request_bytes: bytes) -> None:
    async with serving({}) as (_, port):
        answer = await raw(port, request_bytes)
        assert answer.startswith(b"HTTP/1.1 4")
        assert (await get(port, "/livez"))[0] == 200


async def test_silence_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DEADLINE", 0.1)
    async with serving({}) as (_, port):
        assert await raw(port, b"GET /livez HT") == b""


async def test_too_many_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CONNECTIONS", 1)
    async with serving({}) as (_, port):
        _, waiting = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)
        assert await raw(port, b"") == b""
        waiting.close()
        await waiting.wait_closed()
        await asyncio.sleep(0.05)
        assert (await get(port, "/livez"))[0] == 200


async def test_the_root_leads_to_the_status_page() -> None:
    async def page(_asked: PageRequest) -> PageReply:
        return PageReply(b"")

    async with serving({}) as (operations, port):
        assert (await get(port, "/"))[0] == 404
        operations.add("/statusz", page)
        answer = await raw(port, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 302 ")
        assert b"\r\nlocation: /statusz\r\n" in answer


async def test_a_port_in_use_may_be_replaced_by_a_free_one() -> None:
    async with serving({}) as (_, port):
        other = Operations(dict)
        try:
            host, found = await other.start("127.0.0.1", port, fallback=True)
            assert (host, found != port) == ("127.0.0.1", True)
            assert (await get(found, "/livez"))[0] == 200
        finally:
            await other.close()


async def test_a_free_port_is_kept_in_spite_of_a_fallback() -> None:
    async with serving({}) as (_, port):
        pass
    again = Operations(dict)
    try:
        assert await again.start("127.0.0.1", port, fallback=True) == ("127.0.0.1", port)
    finally:
        await again.close()


async def test_an_address_in_use_is_named() -> None:
    async with serving({}) as (_, port):
        with pytest.raises(StartupError, match=rf"127\.0\.0\.1:{port} \(operations\): Address"):
            await Operations(dict).start("127.0.0.1", port)
