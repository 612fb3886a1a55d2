"""Users through the broker's control socket: the first one, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.security.control import alter_users_request
from quafka_broker.snapshots.control_server import ControlServer
from quafka_broker.snapshots.control_socket import ControlError, NoBrokerError, request
from quafka_client.credentials import stored_credential
from quafka_mesh_ops.ops.security import AlterOrg, UserChange
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import running_state


async def test_users(tmp_path: Path) -> None:
    async with running_state(MemoryDisk(), BrokerConfig(data=tmp_path)) as state:
        control = ControlServer(state, tmp_path)
        await control.start()

        async def send(what: Any) -> str:
            try:
                return str(await asyncio.to_thread(request, tmp_path, what))
            except ControlError as e:
                return f"error: {e}"

        alice = stored_credential("alice", "secret", "SCRAM-SHA-256", 4_096)
        what = alter_users_request(1, [alice], new=True)
        assert "secret" not in json.dumps(what)
        assert await send(what) == "{'changed': '1'}"
        assert await send(what) == "error: user 'alice' exists already"
        assert await send(alter_users_request(1, [alice], new=False)) == "{'changed': '1'}"
        (user,) = state.security.table.of(1).users.values()
        assert alice.credential is not None
        assert user.credentials == [alice.credential]
        gone = UserChange("alice", "SCRAM-SHA-256")
        assert await send(alter_users_request(1, [gone], new=False)) == "{'changed': '1'}"
        assert not state.security.table.of(1).users
        assert "no such credential" in await send(alter_users_request(1, [gone], new=False))

        assert await send(alter_users_request("acme", [alice], new=True)) == (
            "error: there is no org 'acme'"
        )
        await state.security.alter_org(AlterOrg(7, "acme", "active", [], create=True))
        assert await send(alter_users_request("acme", [alice], new=True)) == "{'changed': '1'}"
        assert list(state.security.table.of(7).users) == ["alice"]

        weak = stored_credential("bob", "x", "SCRAM-SHA-256", 1)
        assert "Too few iterations" in await send(alter_users_request(1, [weak], new=True))
        whole = alter_users_request(1, [alice], new=True)
        wrongs: list[dict[str, Any]] = [{"org": None}, {"org": 0}, {"users": 1}, {"users": [{}]}]
        for wrong in wrongs:
            assert "malformed" in await send({**whole, **wrong}), wrong
        assert "not known" in await send({"do": "everything"})
        await control.close()
    with pytest.raises(NoBrokerError):
        request(tmp_path, whole)
