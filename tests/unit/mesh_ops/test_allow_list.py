"""A running node follows the allow-list's file; revocation ends open connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from quafka_mesh_ops.allow_list import AllowList, allow, revoke
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import (
    OpFailedError,
    OutcomeUnknownError,
    PeerUnavailableError,
)
from quafka_mesh_ops.grants import AllowListEntry, parse_entry
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.server import MeshServer
from quafka_proto.errors import ErrorCode
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer
from tests.unit.mesh_ops.mesh import Broker, new_identity

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[tuple[AllowList, Path, list[int]]]:
    file = tmp_path / "allowed"
    file.write_text(f"# two of them\n\n{TWO.upper()}  # Oslo\n")
    allowed = AllowList({ONE}, file)
    calls: list[int] = []
    allowed.watch(lambda: calls.append(len(allowed)))
    yield allowed, file, calls
    await allowed.close()


async def test_nodes_that_the_store_names_count_too(
    followed: tuple[AllowList, Path, list[int]],
) -> None:
    allowed, file, calls = followed
    allowed.trust([f"{THREE} may=coordinate"])
    allowed.trust([f"{THREE} may=coordinate"])
    assert calls == [3]
    assert allowed.grant(THREE) == (parse_entry(f"{THREE} may=coordinate"),)
    revoke(file, TWO)
    await until(lambda: TWO not in allowed)
    assert set(allowed) == {ONE, THREE}
    allowed.trust([])
    assert set(allowed) == {ONE}


async def test_settings_and_file_count_together(
    followed: tuple[AllowList, Path, list[int]],
) -> None:
    allowed, file, calls = followed
    assert set(allowed) == {ONE, TWO}
    allow(file, AllowListEntry(THREE))
    await until(lambda: THREE in allowed)
    assert calls == [3]
    revoke(file, TWO)
    await until(lambda: TWO not in allowed)
    assert ONE in allowed
    assert calls == [3, 2]


async def test_a_check_applies_the_file_at_once(
    followed: tuple[AllowList, Path, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    allowed, file, calls = followed
    file.write_text(THREE)
    await allowed.check()
    assert set(allowed) == {ONE, THREE}
    assert calls == [2]
    file.write_text("damaged")
    await allowed.check()
    assert set(allowed) == {ONE, THREE}
    assert "the last valid list stays in force" in caplog.text
    await AllowList({ONE}).check()


async def test_a_damaged_or_missing_file_keeps_the_last_good_list(
    followed: tuple[AllowList, Path, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    allowed, file, calls = followed

    def logged(text: str) -> bool:
        return any(text in r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR)

    file.write_text(f"{THREE}\n{TWO[:-1]}\n")
    await until(lambda: logged("line 2"))
    file.write_bytes(b"\xff\xfe\x00")
    await until(lambda: logged("line 1"))
    file.write_text(THREE)
    file.chmod(0o666)
    await until(lambda: logged("every user may write it"))
    file.unlink()
    await until(lambda: logged("No such file"))
    assert set(allowed) == {ONE, TWO}
    assert calls == []
    assert len(caplog.records) == 4  # each problem is logged once
    file.write_text(THREE)
    await until(lambda: set(allowed) == {ONE, THREE})


@pytest.mark.parametrize("content", [None, "nobody"])
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "allowed").write_text(content)
    with pytest.raises(StartupError, match="cannot use the allow-list"):
        AllowList({ONE}, tmp_path / "allowed")


async def test_a_revoked_gateway_loses_its_connection_until_it_is_allowed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs, file = new_identity(), new_identity(), tmp_path / "allowed"
    allow(file, AllowListEntry(ours.node_id))
    allowed = AllowList((), file)
    broker = Broker()
    server = MeshServer(theirs, allowed, broker.handlers(), Tracer())
    _, port = await server.start("127.0.0.1", 0)
    allowed.watch(server.enforce)
    client = MeshClient("127.0.0.1", port, ours, {theirs.node_id}, Tracer())
    await client.start()
    try:
        assert await client.wait_connected(30)
        in_flight = asyncio.create_task(client.call(DescribeTopics(["park"]), org_id=1, deadline=9))
        await broker.parked.wait()
        revoke(file, ours.node_id)
        with pytest.raises(OutcomeUnknownError, match="taken off the allow-list"):
            await asyncio.wait_for(in_flight, 30)
        assert broker.cancelled == ["park"]
        assert not server.sessions
        assert "closed node" in caplog.text
        with pytest.raises(PeerUnavailableError):
            await client.call(DescribeTopics(), org_id=1, deadline=0.3)
        allow(file, AllowListEntry(ours.node_id))
        assert await client.wait_connected(30)
        assert await client.call(DescribeTopics(), org_id=1, deadline=2)
    finally:
        await client.close()
        await allowed.close()
        await server.close(0)


async def test_rights_that_a_node_loses_end_its_running_ops_and_no_others(tmp_path: Path) -> None:
    ours, theirs, file = new_identity(), new_identity(), tmp_path / "allowed"
    allow(file, AllowListEntry(ours.node_id))
    allowed = AllowList((), file)
    broker = Broker()
    server = MeshServer(theirs, allowed, broker.handlers(), Tracer(), grants=allowed.grant)
    _, port = await server.start("127.0.0.1", 0)
    allowed.watch(server.enforce)
    client = MeshClient("127.0.0.1", port, ours, {theirs.node_id}, Tracer())
    await client.start()
    try:
        park = DescribeTopics(["park"])
        kept, lost = [
            asyncio.create_task(client.call(park, org_id=org, deadline=9)) for org in (1, 2)
        ]
        await until(lambda: sum(len(session.running) for session in server.sessions) == 2)
        allow(file, parse_entry(f"{ours.node_id} orgs=1"))
        with pytest.raises(OpFailedError) as refused:
            await asyncio.wait_for(lost, 30)
        assert refused.value.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert broker.cancelled == ["park"]
        broker.release.set()
        assert await kept
        assert client.counters().reconnects == 0
        with pytest.raises(OpFailedError):
            await client.call(DescribeTopics(), org_id=2, deadline=2)
        allow(file, AllowListEntry(ours.node_id))
        await until(lambda: allowed.grant(ours.node_id) == (AllowListEntry(ours.node_id),))
        assert await client.call(DescribeTopics(), org_id=2, deadline=2)
    finally:
        await client.close()
        await allowed.close()
        await server.close(0)


async def test_a_gateway_drops_a_broker_that_was_revoked() -> None:
    ours, theirs, allowed = new_identity(), new_identity(), set[str]()
    allowed.add(theirs.node_id)
    broker = Broker()
    server = MeshServer(theirs, {ours.node_id}, broker.handlers(), Tracer())
    _, port = await server.start("127.0.0.1", 0)
    client = MeshClient("127.0.0.1", port, ours, allowed, Tracer())
    await client.start()
    try:
        assert await client.wait_connected(30)
        client.enforce()
        assert client.connected
        in_flight = asyncio.create_task(client.call(DescribeTopics(["park"]), org_id=1, deadline=9))
        await broker.parked.wait()
        allowed.clear()
        client.enforce()
        with pytest.raises(OutcomeUnknownError):
            await in_flight
        with pytest.raises(PeerUnavailableError):
            await client.call(DescribeTopics(), org_id=1, deadline=0.3)
        await until(lambda: not server.sessions)
    finally:
        await client.close()
        await server.close(0)


class AllowedOnce(set[str]):
    """A list that contains every node at the first lookup only."""

    looks = 0

    def __contains__(self, node_id: object) -> bool:
        self.looks += 1
        return self.looks == 1


@pytest.mark.parametrize("who", ["broker", "gateway"])
async def test_revoked_between_the_proof_and_the_end_of_the_handshake(
    who: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs, once = new_identity(), new_identity(), AllowedOnce()
    server = MeshServer(
        theirs, once if who == "broker" else {ours.node_id}, Broker().handlers(), Tracer()
    )
    _, port = await server.start("127.0.0.1", 0)
    client = MeshClient(
        "127.0.0.1", port, ours, once if who == "gateway" else {theirs.node_id}, Tracer()
    )
    await client.start()
    with pytest.raises(PeerUnavailableError):
        await client.call(DescribeTopics(), org_id=1, deadline=0.3)
    await until(lambda: "it was taken off the allow-list" in caplog.text)
    await client.close()
    await server.close(0)
