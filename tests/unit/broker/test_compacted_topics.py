"""Topics with compaction: which records they take, and which changes of the log they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quafka_broker.admission import queue as admissions
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import delete_records, produce
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_mesh_ops.ops.records import (
    DeleteRecordsOp,
    DeleteRecordsOps,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_proto.compression import Codec
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import DELETE_HORIZON
from tests.unit.broker.compacting import compacting, kept_in
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, context, running_state
from tests.unit.proto.batches import resealed

KEYED = Record(0, 1_000, b"k", b"v", [])
KEYLESS = Record(0, 1_000, None, b"v", [])


async def send(state: BrokerState, records: bytes, topic: str = "table") -> ProduceOpResp:
    op = ProduceOps([ProduceOp(topic, 0, records)])
    (answer,) = (await produce.handle(state, context(), op)).partitions
    return answer


def _with_policy(topic: Topic, policy: str) -> Topic:
    return replace(topic, configs={"cleanup.policy": policy})


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
async def test_records_without_a_key_are_named(policy: str, codec: int) -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "table", 1, {"cleanup.policy": policy})
        records = [KEYED, KEYLESS, KEYED._replace(value=None), KEYLESS._replace(key=b"")]
        answer = await send(state, bytes(build_batch([*records, KEYLESS], codec=codec)))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "without a key" in answer.error_message
        named = answer.record_errors or []
        assert [each.index for each in named] == [1, 4]
        assert all("without a key" in each.message for each in named)
        assert (await send(state, bytes(build_batch(records[2:], codec=codec)))).base_offset == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_long_batches_are_checked_in_the_thread(codec: int) -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "table", 1, {"cleanup.policy": "compact"})
        many = [KEYED] * (admissions.SHORT_RECORDS + 1)
        assert (await send(state, bytes(build_batch(many, codec=codec)))).error_code == 0
        many[1_000:2_000] = [KEYLESS] * 1_000
        answer = await send(state, bytes(build_batch(many, codec=codec)))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert state.admissions.in_thread == 2
        named = [each.index for each in answer.record_errors or []]
        assert named == list(range(1_000, 1_100)), "an error names at most 100 records"


async def test_other_topics_take_records_without_a_key() -> None:
    async with running_state(MemoryDisk()) as state:
        table, _ = await state.topics.create(ORG, "table", 1)
        assert (await send(state, batch_of(b"v"))).base_offset == 0
        await state.topics.change(table, lambda t: _with_policy(t, "compact"))
        assert (await send(state, batch_of(b"v"))).error_code == ErrorCode.INVALID_RECORD
        await state.topics.change(table, lambda t: _with_policy(t, "delete"))
        assert (await send(state, batch_of(b"v"))).base_offset == 1


async def test_the_brokers_policy_counts() -> None:
    config = BrokerConfig(data=Path("unused"), log_cleanup_policy="compact")
    async with running_state(MemoryDisk(), config) as state:
        await state.topics.create(ORG, "table", 1)
        await state.topics.create(ORG, "events", 1, {"cleanup.policy": "delete"})
        assert (await send(state, batch_of(b"v"))).error_code == ErrorCode.INVALID_RECORD
        assert (await send(state, batch_of(b"v"), "events")).base_offset == 0


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("", ErrorCode.POLICY_VIOLATION),
        ("delete", ErrorCode.NONE),
        ("compact,delete", ErrorCode.NONE),
    ],
)
async def test_records_are_deleted_only_where_the_policy_deletes(policy: str, code: int) -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "table", 1, {"cleanup.policy": policy})
        await send(state, bytes(build_batch([KEYED, KEYED])))
        op = DeleteRecordsOps([DeleteRecordsOp("table", 0, 1)])
        (answer,) = (await delete_records.handle(state, context(), op)).partitions
        assert (answer.error_code, answer.low_watermark) == (code, -1 if code else 1)


async def test_a_producers_delete_horizon_does_not_shorten_the_retention_of_its_tombstones() -> (
    None
):
    async with compacting(MemoryDisk()) as broker:
        topic = await broker.topic("table")
        tombstone = build_batch([Record(0, 1_000, b"k", None, [])])
        passed = resealed(bytes(tombstone), attributes=DELETE_HORIZON)
        assert (await send(broker.state, passed)).error_code == 0
        await broker.put(topic, (b"other", b"v"))
        partition = broker.partition(topic)
        for _ in range(2):
            await broker.compact(topic)
            assert [each.key for each in await kept_in(broker.state, partition)] == [b"k", b"other"]
        broker.now_ms += 24 * 3_600_000
        await broker.compact(topic)
        assert [each.key for each in await kept_in(broker.state, partition)] == [b"other"]
