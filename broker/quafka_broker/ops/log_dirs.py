"""Op 0x44, describe the log's folder: the bytes of each partition, and free disk space.

All partitions share one log. The size of a partition is that of its record batches as stored; it
may include up to 64 deleted batches.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence

from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_loop.slices import Slices
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import DescribeLogDir, DescribeLogDirResp, PartitionSizes
from quafka_proto.errors import ErrorCode

_PARTITIONS_PER_SLICE = 1_000


async def describe(
    state: BrokerState, context: OpContext, op: DescribeLogDir
) -> DescribeLogDirResp:
    """Sum the partitions' sizes, and read the file system's usage."""
    found: list[PartitionSizes] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for topic, partitions in _wanted(state, context.org_id, op):
        sizes: list[int] = []
        for partition in partitions:
            sizes.append(state.sources.partition(topic, partition).size)
            await slices.done()
        found.append(PartitionSizes(topic.name, list(partitions), sizes))
    path = (state.configs.broker.folder / "wal").absolute()
    failed = ErrorCode.KAFKA_STORAGE_ERROR if state.log.failure is not None else ErrorCode.NONE
    try:
        usage = await asyncio.to_thread(shutil.disk_usage, path)
    except OSError:
        return DescribeLogDirResp(str(path), -1, -1, found, ErrorCode.KAFKA_STORAGE_ERROR)
    return DescribeLogDirResp(str(path), usage.total, usage.free, found, failed)


def _wanted(
    state: BrokerState, org: int, op: DescribeLogDir
) -> Iterator[tuple[Topic, Sequence[int]]]:
    if op.topics is None:
        for topic in state.registry.topics(org):
            yield topic, range(topic.partitions)
        return
    for asked in op.topics:
        known = state.registry.by_name(org, asked.topic)
        if known is not None:
            there = [p for p in dict.fromkeys(asked.partitions) if known.has(p)]
            if there:
                yield known, there
