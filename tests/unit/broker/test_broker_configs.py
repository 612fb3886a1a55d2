"""Configs of the broker that clients change while it runs."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.config.broker_configs import NO_THROTTLE, THROTTLES
from quafka_broker.ops import configs
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.admin import (
    AlterBrokerConfigs,
    ConfigDescription,
    DescribeBroker,
)
from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ConfigType
from quafka_proto.errors import ErrorCode as E
from quafka_proto.schema.configs import IncrementalAlterableConfig as Change
from tests.unit.broker.compacting import COMPACT, compacting
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import context, running_state

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
BACKOFF = "log.cleaner.backoff.ms"


async def change(state: BrokerState, name: str, value: str | None, *, own: bool = True) -> int:
    operation = DELETE if value is None else SET
    changes = [Change(name, operation, value)]
    answer = await configs.alter_broker(state, context(), AlterBrokerConfigs(changes, own))
    assert bool(answer.error_message) == bool(answer.error_code)
    return answer.error_code


async def shown(state: BrokerState, name: str) -> ConfigDescription:
    settings = (await configs.describe_broker(state, context(), DescribeBroker())).settings
    (found,) = [each for each in settings if each.name == name]
    return found


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (BACKOFF, "200", 0),
        (BACKOFF, "1", E.INVALID_CONFIG),
        ("log.cleaner.dedupe.buffer.size", str(64 << 20), 0),
        ("log.cleaner.threads", "2", E.INVALID_REQUEST),
        ("num.partitions", "3", E.INVALID_REQUEST),
        ("advertised.listeners", "PLAINTEXT://h:1", E.INVALID_REQUEST),
        *((name, "1000", 0) for name in THROTTLES),
        *((name, "x", E.INVALID_CONFIG) for name in THROTTLES),
    ],
)
async def test_what_can_be_changed(name: str, value: str, code: int) -> None:
    async with running_state(MemoryDisk()) as state:
        assert await change(state, name, value) == code
        assert await change(state, name, value, own=False) == code
        if not code:
            found = await shown(state, name)
            assert (found.value, found.source) == (value, ConfigSource.DYNAMIC_BROKER)
        assert await change(state, name, None) == 0


async def test_limits_of_replication_are_kept_and_removed_as_kafkas_tool_does() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        for name in THROTTLES:
            before = await shown(state, name)
            assert (before.value, before.source) == (str(NO_THROTTLE), ConfigSource.DEFAULT)
            assert not before.read_only
            assert await change(state, name, "5") == 0
    async with running_state(disk.copy()) as state:
        for name in THROTTLES:
            assert (await shown(state, name)).value == "5"
            assert await change(state, name, None) == 0
            assert (await shown(state, name)).value == str(NO_THROTTLE)


async def test_a_shorter_backoff_of_compaction_is_in_effect_at_once() -> None:
    async with compacting(MemoryDisk()) as broker:
        state = broker.state
        assert await change(state, BACKOFF, "86400000") == 0
        running = asyncio.create_task(state.compaction.run())
        topic = await broker.topic(configs=COMPACT | {"max.compaction.lag.ms": "1"})
        for n in range(2):
            await broker.put(topic, (b"a", b"%d" % n))
        broker.now_ms += 1_000
        await asyncio.sleep(3_600)
        assert state.compaction.passes == 0
        assert await change(state, BACKOFF, "1000") == 0
        await asyncio.sleep(1.5)
        assert state.compaction.passes == 1
        running.cancel()
        await asyncio.wait([running])


async def test_synonyms_of_the_retention_are_those_of_kafka() -> None:
    name, hours = "log.retention.ms", ("log.retention.hours", "-1", ConfigSource.DEFAULT)
    async with running_state(MemoryDisk()) as state:

        async def synonyms() -> list[tuple[str, str | None, int]]:
            found = await shown(state, name)
            assert found.config_type == ConfigType.LONG
            return [(each.name, each.value, each.source) for each in found.synonyms]

        assert await synonyms() == []
        assert await change(state, name, "7") == 0
        assert await synonyms() == [(name, "7", ConfigSource.DYNAMIC_BROKER), hours]
        assert await change(state, name, "8", own=False) == 0
        everywhere = (name, "8", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert await synonyms() == [(name, "7", ConfigSource.DYNAMIC_BROKER), everywhere, hours]
        assert await change(state, name, None) == 0
        assert await synonyms() == [everywhere, hours]
