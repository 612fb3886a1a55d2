"""Brokers that serve Kafka's folders, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import fetch
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps
from quafka_proto.record_codec import iter_records
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, context, running_state

LONG = 10_000


@asynccontextmanager
async def serving(*folders: Path, disk: MemoryDisk | None = None) -> AsyncGenerator[BrokerState]:
    config = BrokerConfig(data=Path("unused"), kafka_log_dirs=folders)
    async with running_state(disk or MemoryDisk(), config) as state:
        assert state.kafka is not None
        following = asyncio.create_task(state.kafka.run())
        try:
            yield state
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following


async def get(
    state: BrokerState,
    offset: int = 0,
    topic: str = "t",
    partition: int = 0,
    *,
    wait: int = LONG,
    committed: bool = False,
    max_bytes: int = EVERYTHING,
    min_bytes: int = 1,
    **more: Any,
) -> FetchOpResp:
    part = FetchOp(topic, partition, offset, max_bytes, **more)
    op = FetchOps(
        [part], max_wait_ms=wait, min_bytes=min_bytes, max_bytes=max_bytes,
        isolation_level=int(committed),
    )  # fmt: skip
    return (await fetch.handle(state, context(), op)).partitions[0]


def values(answer: FetchOpResp) -> list[tuple[int, bytes | None]]:
    assert answer.error_code == 0
    return [(r.offset, r.value) for batch in answer.records for r in iter_records(batch)]


async def eventually(check: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.02)
