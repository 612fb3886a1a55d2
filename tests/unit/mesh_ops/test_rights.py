"""Rights: every op is checked against its node's grant before its body is read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from quafka_mesh_ops import op_runner
from quafka_mesh_ops.envelopes import decode_response, encode_body, encode_request
from quafka_mesh_ops.frames import FrameReader
from quafka_mesh_ops.grants import (
    EVERY_ORG,
    EVERY_RIGHT,
    AllowListEntry,
    Grant,
    parse_entries,
    parse_entry,
    permits,
)
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.op_runner import UNSUPPORTED_VERSION
from quafka_mesh_ops.ops import previous
from quafka_mesh_ops.ops.base import AnyOp, OpCode
from quafka_mesh_ops.rights import FOR_EVERY_NODE, NEEDS, MeshRight, Need
from quafka_mesh_ops.server import MeshServer
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import Tracer
from tests.unit.mesh_ops.mesh import Broker, fetch_of, new_identity
from tests.unit.mesh_ops.raw_quic import RawClient, credentials, raw_client

NODE = "a" * 64
SERVE_1 = Need(MeshRight.SERVE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
SNAPSHOT_ALL = Need(MeshRight.SNAPSHOT, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, every_org=True)


class Peer:
    """A gateway with a grant that the test sets, which sends ops with unreadable bodies."""

    def __init__(self, server: MeshServer, client: RawClient, node_id: NodeId) -> None:
        self.server = server
        self.node_id = node_id
        self._client = client
        self._last = 0

    async def ask(self, code: int, org: int = 1, body: AnyOp | None = None) -> int:
        """Send an op; returns the error code. The connection must stay open."""
        self._last += 1
        unreadable: list[Any] = [msgpack.packb(["no op has a body like this"])]
        sent = unreadable if body is None else encode_body(body)
        self._client.data.clear()
        self._client.received.clear()
        self._client.send(0, b"".join(encode_request(self._last, code, org, "", "", 9000, sent)))
        await asyncio.wait_for(self._client.data.wait(), 30)
        ((_, payload),) = FrameReader().feed(bytes(self._client.received))
        answer = decode_response(payload)
        assert answer.request_id == self._last
        return answer.error_code


@pytest.fixture
async def peer() -> AsyncIterator[tuple[Peer, dict[NodeId, Grant]]]:
    ours, grants = new_identity(), dict[NodeId, Grant]()
    server = MeshServer(
        new_identity(), {ours.node_id}, Broker().handlers(), Tracer(), grants=grants.__getitem__
    )
    _, port = await server.start("127.0.0.1", 0)
    async with raw_client(port, credentials(ours)) as client:
        yield Peer(server, client, ours.node_id), grants
    await server.close(0)


def test_every_op_says_what_it_needs() -> None:
    assert set(NEEDS) | FOR_EVERY_NODE == set(OpCode)
    assert not set(NEEDS) & FOR_EVERY_NODE


async def test_every_op_is_refused_without_its_right_before_its_body_is_read(
    peer: tuple[Peer, dict[NodeId, Grant]],
) -> None:
    asked, grants = peer
    refused = 0
    for code in map(OpCode, NEEDS):
        need = NEEDS[code]
        for grant in (
            (),
            (AllowListEntry(asked.node_id, EVERY_ORG, EVERY_RIGHT - {need.right}),),
            (AllowListEntry(asked.node_id, ((2, 2), (4, 9)), EVERY_RIGHT),),
        ):
            grants[asked.node_id] = grant
            assert await asked.ask(code, org=1) == need.refusal, code.name
            refused += 1
    (counters,) = asked.server.counters()
    assert (counters.refused_ops, counters.reconnects) == (refused, 0)


async def test_a_fetch_that_had_to_wait_needs_the_right_when_it_begins(
    peer: tuple[Peer, dict[NodeId, Grant]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, grants = peer
    grants[asked.node_id] = (AllowListEntry(asked.node_id),)
    monkeypatch.setattr(op_runner, "_REPLY_BACKLOG", -1)  # as with unread replies
    fetch = asyncio.create_task(asked.ask(OpCode.FETCH, body=fetch_of(10)))
    (session,) = asked.server.sessions
    async with asyncio.timeout(5):
        while not session._ops.waiting:
            await asyncio.sleep(0.005)
    grants[asked.node_id] = ()
    monkeypatch.setattr(op_runner, "_REPLY_BACKLOG", 1 << 20)
    session._ops.progress()
    assert await fetch == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_an_op_that_nobody_knows_is_answered_as_before(
    peer: tuple[Peer, dict[NodeId, Grant]],
) -> None:
    asked, grants = peer
    grants[asked.node_id] = ()
    assert await asked.ask(0x7F) == UNSUPPORTED_VERSION


async def test_refusals_are_logged_once_for_each_node_and_right(
    peer: tuple[Peer, dict[NodeId, Grant]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    asked, grants = peer
    grants[asked.node_id] = (parse_entry(f"{asked.node_id} orgs=2 may=serve"),)
    for _ in range(3):
        await asked.ask(OpCode.FETCH)
        await asked.ask(OpCode.DELETE_TOPIC, org=2)
    said = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(": ")[2] for text in said] == [
        "its entry on the allow-list does not let it serve org 1",
        "its entry on the allow-list does not let it administer org 2",
    ]
    assert all(asked.node_id[:16] in text for text in said)


@pytest.mark.parametrize(
    ("text", "org_1", "org_2", "log"),
    [
        (NODE, True, True, True),
        (f"{NODE} orgs=1", True, False, False),
        (f"{NODE} orgs=*", True, True, False),
        (f"{NODE} may=serve", True, True, False),
        (f"{NODE} may=administer", False, False, False),
        (f"{NODE} may=snapshot", False, False, True),
        (f"{NODE} orgs=1-4294967295 may=snapshot", False, False, True),
        (f"{NODE} orgs=2-4294967295 may=snapshot,serve", False, True, False),
        (f"{NODE} orgs=1, {NODE} orgs=2 may=snapshot", True, False, False),
    ],
)
def test_what_an_entry_grants(text: str, org_1: bool, org_2: bool, log: bool) -> None:
    grant = parse_entries(text)
    found = permits(grant, SERVE_1, 1), permits(grant, SERVE_1, 2), permits(grant, SNAPSHOT_ALL, 1)
    assert found == (org_1, org_2, log)
    assert parse_entries(",".join(map(str, grant))) == grant


@pytest.mark.parametrize(
    "text",
    ["", "a", f"{NODE} serve", f"{NODE} orgs=", f"{NODE} orgs=1,,2", f"{NODE} orgs=0-2",
     f"{NODE} orgs=4294967296", f"{NODE} orgs=1 orgs=2", f"{NODE} may=", f"{NODE} may=all",
     f"{NODE} orgs=1 {NODE}", f"{NODE} orgs=**"],
)  # fmt: skip
def test_what_is_no_entry(text: str) -> None:
    with pytest.raises(ValueError):
        parse_entry(text)


def test_the_manual_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    for right in MeshRight:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{right}` |")]
        named = set(row.split("|")[3].replace(",", " ").split())
        codes = {code for code, need in NEEDS.items() if need.right is right}
        assert named == {OpCode(code).name for code in codes - {op.code for op in previous.ALL}}
