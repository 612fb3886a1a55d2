"""Topics over Redis through the broker's ops, for the tests here."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from quafka_broker.config.redis_grants import parse_grants
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import fetch, list_offsets, produce, topics
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOps
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import CreateTopic, CreateTopicResp
from quafka_proto.record_codec import Record, iter_records
from quafka_proto.records import end_offset
from quafka_proto.schema.topics import CreatableTopicConfig
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, batch_of, context, running_state


@asynccontextmanager
async def state_with(
    *allowed: str,
    disk: MemoryDisk | None = None,
    secrets: Path | None = None,
    ca_file: Path | None = None,
    **settings: int,
) -> AsyncGenerator[BrokerState]:
    config = BrokerConfig(
        data=Path("unused"),
        sources_redis_allowed=parse_grants(",".join(allowed)),
        sources_redis_secrets=secrets,
        sources_redis_ca_file=ca_file,
        **{f"sources_redis_{name}": value for name, value in settings.items()},  # type: ignore[arg-type]
    )
    async with running_state(disk or MemoryDisk(), config) as state:
        try:
            yield state
        finally:
            await state.redis.close()


async def create(
    state: BrokerState, source: str, name: str = "t", count: int = 1, *more: CreatableTopicConfig
) -> CreateTopicResp:
    entries = [CreatableTopicConfig("quafka.source", source), *more]
    return await topics.create(state, context(), CreateTopic(name, count, configs=entries))


async def get(
    state: BrokerState, offset: int, wait: int = 2_000, number: int = 0, size: int = EVERYTHING,
    least: int = 1, name: str = "t",
) -> FetchOpResp:  # fmt: skip
    op = FetchOps(
        [FetchOp(name, number, offset, size)], max_wait_ms=wait, min_bytes=least, max_bytes=size
    )
    return (await fetch.handle(state, context(), op)).partitions[0]


async def read_all(state: BrokerState, offset: int = 0, number: int = 0) -> list[Record]:
    """All records up to the high watermark."""
    found: list[Record] = []
    for _ in range(10_000):
        answer = await get(state, offset, 5_000, number)
        assert answer.error_code == 0, answer
        for batch in answer.records:
            found += iter_records(batch)
            offset = end_of(batch)
        if offset >= answer.high_watermark:
            return found
    raise AssertionError("reading does not end")


def end_of(batch: object) -> int:
    return end_offset(cast("bytes", batch))


async def offset_for(state: BrokerState, timestamp: int, number: int = 0) -> tuple[int, int]:
    op = ListOffsetsOps([ListOffsetsOp("t", number, timestamp)])
    (answer,) = (await list_offsets.handle(state, context(), op)).partitions
    return (answer.offset, answer.timestamp) if not answer.error_code else (-answer.error_code, -99)


async def put(
    state: BrokerState,
    *values: bytes,
    number: int = 0,
    producer: tuple[int, int, int] | None = None,
    name: str = "t",
) -> ProduceOpResp:
    op = ProduceOps([ProduceOp(name, number, batch_of(*values, producer=producer))])
    return (await produce.handle(state, context(), op)).partitions[0]
