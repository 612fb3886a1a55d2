"""`sources.redis.allowed`: which servers, secrets and streams the topics of an org may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.config.redis_grants import Grant, overlap, parse_grants
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import topics
from quafka_broker.server import Broker
from quafka_broker.sources.redis.grants import Grants
from quafka_broker.sources.redis.url import parse_source
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.topics import CreateTopic, CreateTopicResp
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.topics import CreatableTopicConfig
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.redis.hostile_server import HostileServer
from tests.unit.broker.redis.tools import create, get, state_with
from tests.unit.broker.tools import context

ALLOWED = (
    "ops:6379, 7@a:6379/3?auth=file:org7&stream=acme.*, 7@a:6379?stream=feed, 8@B:1?auth="
    "env:QUAFKA_REDIS_B, 8@a:6379?stream=feed, [::1]:7?auth=file:mine"
)


def test_entries_are_shown_as_they_are_written() -> None:
    grants = parse_grants(ALLOWED)
    assert grants == (
        Grant(1, "ops:6379", auth=None),
        Grant(7, "a:6379", 3, "file:org7", "acme.*"),
        Grant(7, "a:6379", stream="feed"),
        Grant(8, "b:1", auth="env:QUAFKA_REDIS_B"),
        Grant(8, "a:6379", stream="feed"),
        Grant(1, "[::1]:7", auth="file:mine"),
    )
    assert parse_grants(",".join(map(str, grants))) == grants
    odd = Grant(7, "a:1", stream="a,b&c=%d@/{p}*")
    assert parse_grants(str(odd)) == (odd,)
    assert parse_grants(" , ") == ()


@pytest.mark.parametrize(
    "text",
    [
        "cache", "cache:0", "x@cache:1", "0@cache:1", "@cache:1", "4294967296@cache:1", "cache:x",
        "*:1:2", "*@cache:1", "cache:1/", "cache:1/x", "cache:1/99999", "cache:1?", "cache:1?a",
        "cache:1?auth=", "cache:1?auth=hunter2", "cache:1?auth=env:PATH", "cache:1?stream=",
        "cache:1?auth=file:../x", "cache:1?db=1", "redis://cache:1", "7@8@cache:1",
        "cache:1?auth=file:a&auth=file:b",
    ],
)  # fmt: skip
def test_bad_entries_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_grants(text)


@pytest.mark.parametrize(
    ("org", "source", "allowed"),
    [
        (1, "redis://ops?stream=any", True),
        (1, "redis://ops/5?stream=any&auth=file:any", True),
        (1, "redis://ops?stream=any&auth=file:org7", False),
        (1, "redis://ops?stream=any&auth=env:QUAFKA_REDIS_B", False),
        (1, "redis://ops?stream=any&auth=file:mine", False),
        (1, "redis://[::1]:7?stream=any&auth=file:mine", True),
        (1, "redis://[::1]:7?stream=any", False),
        (1, "redis://a?stream=feed", False),
        (1, "redis://ops,a?stream=feed", False),
        (7, "redis://ops?stream=any", False),
        (7, "redis://a/3?stream=acme.x&auth=file:org7", True),
        (7, "rediss://a/3?stream=acme.{p}&auth=file:org7", True),
        (7, "redis://a/3?stream=acme.x", False),
        (7, "redis://a/2?stream=acme.x&auth=file:org7", False),
        (7, "redis://a?stream=acme.x&auth=file:org7", False),
        (7, "redis://a/3?stream=other&auth=file:org7", False),
        (7, "redis://a/3?stream=acme.x&auth=file:mine", False),
        (7, "redis://a/3?stream=acme.x&auth=file:unnamed", False),
        (7, "redis://b:1?stream=s&auth=file:org7", False),
        (7, "redis://b:1?stream=s&auth=env:QUAFKA_REDIS_B", False),
        (7, "redis://a?stream=feed", True),
        (7, "redis://a/9?stream=feed", True),
        (7, "redis://a?stream=feed2", False),
        (7, "redis://a?stream=feed&auth=file:org7", False),
        (8, "redis://b:1?stream=s&auth=env:QUAFKA_REDIS_B", True),
        (8, "redis://b:1?stream=s", False),
        (8, "redis://a?stream=feed", True),
        (8, "redis://a?stream=acme.x", False),
        (9, "redis://ops?stream=any", False),
    ],
)
def test_a_topic_names_what_an_entry_grants_to_its_org(
    org: int, source: str, allowed: bool
) -> None:
    refusal = Grants(parse_grants(ALLOWED)).refusal(parse_source(source), org)
    assert (not refusal) == allowed


def test_a_refusal_has_the_setting_an_entry_that_would_do_and_nothing_of_other_orgs() -> None:
    grants = Grants(parse_grants(ALLOWED))
    refusal = grants.refusal(parse_source("redis://b:1?stream=s&auth=file:org7"), 7)
    assert "sources.redis.allowed has no such entry as 7@b:1?auth=file:org7;" in refusal
    assert refusal.endswith(": 7@a:6379/3?auth=file:org7&stream=acme.*; 7@a:6379?stream=feed")
    assert grants.refusal(parse_source("redis://c?stream=s"), 9).endswith(" for this org: none")
    assert "sources.redis.allowed" in Grants(()).refusal(parse_source("redis://c?stream=s"), 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:1, 7@a:1?stream=x", ""),
        ("a:1, 7@a:1/7, 8@a:1/8", ""),
        ("a:1, 7@a:1?auth=file:x", ""),
        ("7@a:1, 7@a:1?auth=file:x, 8@b:1", ""),
        ("a:1, 7@a:1", "7@a:1 opens all streams"),
        ("7@a:1?stream=x, 8@a:1", "8@a:1 opens all streams"),
        ("7@a:1?auth=file:x, 8@a:1?auth=file:x", "7@a:1.auth=file:x opens all streams"),
    ],
)
def test_an_address_of_several_orgs_has_a_part_for_each(text: str, problem: str) -> None:
    found = overlap(parse_grants(text))
    assert bool(found) == bool(problem)
    assert problem.replace(".auth", "?auth") in found


async def test_a_broker_does_not_start_with_entries_that_open_another_orgs_streams(
    tmp_path: Path,
) -> None:
    config = BrokerConfig(data=tmp_path, sources_redis_allowed=parse_grants("a:1,7@a:1"))
    with pytest.raises(StartupError, match=r"sources\.redis\.allowed: 7@a:1 opens"):
        await Broker(config, Tracer()).start()


async def _create(state: BrokerState, org: int, source: str, name: str = "t") -> CreateTopicResp:
    op = CreateTopic(name, 1, configs=[CreatableTopicConfig("quafka.source", source)])
    return await topics.create(state, context(org), op)


async def test_a_secret_reaches_no_server_of_another_org(tmp_path: Path) -> None:
    (tmp_path / "org7-prod").write_text("reader:hunter7")
    async with HostileServer({}) as sevens, HostileServer({}) as twos:
        allowed = f"7@{sevens.address}?auth=file:org7-prod", f"2@{twos.address}"
        async with state_with(*allowed, secrets=tmp_path, timeout_ms=200) as state:
            for source in (
                f"redis://{twos.address}?stream=s&auth=file:org7-prod",
                f"redis://{sevens.address}?stream=s&auth=file:org7-prod",
                f"redis://{sevens.address}?stream=s",
                f"redis://{twos.address},{sevens.address}?stream=s",
            ):
                refused = await _create(state, 2, source)
                assert refused.error_code == ErrorCode.INVALID_CONFIG
                assert "sources.redis.allowed" in refused.error_message
                assert f"2@{twos.address}" in refused.error_message
                assert "7@" not in refused.error_message
            source = f"redis://{sevens.address}?stream=s&auth=file:org7-prod"
            assert (await _create(state, 7, source)).error_code == 0
            topic = state.registry.by_name(7, "t")
            assert topic is not None
            await state.redis.server_of(topic).look()
        assert (sevens.passwords, twos.passwords) == ({b"hunter7"}, set())
        assert not twos.commands


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", "8@{}"),
        ("{}?auth=file:secret", "8@{}?auth=file:secret"),
        ("{}", "{}?stream=other"),
        ("{}", "{}/3"),
        ("{}", "8@other:1?auth=file:secret"),
    ],
)
async def test_a_topic_that_is_not_allowed_any_more_reaches_no_server(
    tmp_path: Path, before: str, after: str
) -> None:
    (tmp_path / "secret").write_text("hunter2")
    disk = MemoryDisk()
    async with HostileServer({}) as server:
        source = f"redis://{server.address}/0?stream=s&auth=file:secret"
        async with state_with(before.format(server.address), disk=disk, secrets=tmp_path) as state:
            assert (await create(state, source)).error_code == 0
        async with state_with(after.format(server.address), disk=disk, secrets=tmp_path) as state:
            assert (await get(state, 0, 500)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            ((org, found),) = state.redis.servers
            assert (org, server.commands) == (1, 0)
            assert "sources.redis.allowed" in found.problem
