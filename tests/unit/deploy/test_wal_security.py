"""`quafka wal dump` on a log with users and rules: it shows them, and no key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from quafka.cli import main
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.wal.disk import RealDisk
from tests.unit.broker.test_security import alter_org, alter_users, create_acls, rule, user
from tests.unit.broker.tools import running_state


def test_a_dump_shows_users_and_rules_and_no_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wal").mkdir()

    secrets: list[bytes] = []

    async def fill() -> None:
        async with running_state(RealDisk(tmp_path / "wal"), BrokerConfig(data=tmp_path)) as state:
            assert await alter_users(state, user("alice")) == [0]
            assert await create_acls(state, *(rule(str(at)) for at in range(150))) == [0] * 150
            assert not (await alter_org(state, 7, "blue", create=True)).error_code
            await asyncio.gather(state.security.make_secret(), state.security.make_secret())
            secrets.append(state.security.table.secret)

    asyncio.run(fill())
    assert main(["wal", "dump", str(tmp_path), "--format", "json"]) == 0
    said = capsys.readouterr().out
    entries = [json.loads(line) for line in said.splitlines()]
    found = [each for each in entries if each.get("journal") == "__quafka_security"]
    made = [event for each in found for event in each["events"]]
    assert [each["event"] for each in made] == [
        "UserSet",
        "RulesAdded",
        "RulesAdded",
        "OrgSet",
        "SecretMade",
    ]
    assert [len(each["events"]) for each in found] == [1, 2, 1, 1]
    assert made[0]["credentials"] == [["SCRAM-SHA-256", "", 4096, "", ""]]
    assert b"salt".hex() not in said
    assert len(secrets[0]) == 32
    assert secrets[0].hex() not in said
    assert len(made[1]["rules"]) + len(made[2]["rules"]) == 150
