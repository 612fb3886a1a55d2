"""What the console refuses before a page is asked: other hosts, other sites."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra quafka[console]")

from quafka_console.app import Protected


async def inner(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def asked(
    kind: str = "http", method: str = "GET", hosts: Any = frozenset(), **headers: Any
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": method, "path": "/", "headers": raw}
    await Protected(inner, hosts)(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9094", "127.0.0.1:9094", "[::1]:9094", "10.1.2.3"]
)
async def test_the_console_answers_under_its_own_names(host: str) -> None:
    first, *_ = await asked(host=host)
    assert first["status"] == 200
    headers = dict(first["headers"])
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[", "127.0.0.1.x"])
async def test_names_of_others_are_refused(host: str) -> None:
    """A page of another site whose name was made to lead here: DNS rebinding."""
    assert (await asked(host=host))[0]["status"] == 403
    assert await asked("websocket", host=host) == [{"type": "websocket.close", "code": 1008}]


async def test_a_name_may_be_allowed() -> None:
    assert (await asked(host="console.example", hosts=frozenset({"console.example"})))[0][
        "status"
    ] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9095"])
async def test_other_sites_may_neither_change_anything_nor_open_the_websocket(origin: str) -> None:
    here = {"host": "localhost:9094", "origin": origin}
    assert (await asked(method="POST", **here))[0]["status"] == 403
    assert (await asked("websocket", **here))[0]["type"] == "websocket.close"
    same = {"host": "localhost:9094", "origin": "http://localhost:9094"}
    assert (await asked(method="POST", **same))[0]["status"] == 200
    assert (await asked("websocket", **same))[0]["type"] == "websocket.accept"
