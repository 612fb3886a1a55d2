"""What operators see of compaction: the op behind `topics describe`, metrics, the status page."""

from __future__ import annotations

from pathlib import Path

from quafka_broker.ops import compaction, produce
from quafka_broker.state import BrokerState
from quafka_broker.status.log_status import ShardStatus
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.status.status_page import sections
from quafka_mesh_ops.ops.admin import DescribeCompaction
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_telemetry.status_page import PageTable
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

SEGMENT = 1 << 16
VALUE = bytes(10_000)


async def fill(state: BrokerState) -> None:
    """A compacted topic with two partitions, one of which has records in sealed segments."""
    await state.topics.create(ORG, "table", 2, {"cleanup.policy": "compact"})
    await state.topics.create(ORG, "events", 1)
    batch = bytes(build_batch([Record(0, 1_000, b"k", VALUE, [])]))
    for _ in range(3 * SEGMENT // len(batch)):
        await produce.handle(state, context(), ProduceOps([ProduceOp("table", 0, batch)]))


async def test_dirty_bytes_are_described() -> None:
    async with running_state(MemoryDisk(), segment_bytes=SEGMENT) as state:
        await fill(state)
        found = await compaction.describe(state, context(), DescribeCompaction("table"))
        dirty, clean = found.partitions
        assert dirty.dirty_bytes > SEGMENT
        assert dirty.due
        assert (clean.dirty_bytes, clean.due, clean.last_ms) == (0, False, -1)
        plain = await compaction.describe(state, context(), DescribeCompaction("events"))
        assert (plain.partitions, plain.error_code) == ([], 0)
        unknown = await compaction.describe(state, context(), DescribeCompaction("unknown"))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metrics_and_the_status_page() -> None:
    async with running_state(MemoryDisk(), segment_bytes=SEGMENT) as state:
        stats = BrokerStats()
        figures = BrokerMetrics(state, stats, Path("/"))
        figures.read()
        await figures.compaction.read()
        assert not list(figures.compaction.detail())
        assert {"quafka_compaction_passes", "quafka_compaction_failures"} <= {
            family.name for family in figures.collect()
        }
        await fill(state)
        await figures.compaction.read()
        found = {
            (family.name.removeprefix("quafka_compaction_"), *labels): float(value)  # type: ignore[arg-type]
            for family in figures.compaction.detail()
            for labels, value in family.samples
        }
        assert {labels[1:] for labels in found} == {(str(ORG), "table")}
        assert found["dirty_bytes", str(ORG), "table"] > SEGMENT
        assert found["due_partitions", str(ORG), "table"] == 1
        assert found["left_ratio", str(ORG), "table"] == 1
        assert 0 <= found["age_seconds", str(ORG), "table"] < 60
        (table,) = [
            each
            for each in sections([ShardStatus(0, state, figures)], stats, list, "")
            if isinstance(each, PageTable) and each.title.startswith("Compacted topics: 1")
        ]
        assert len(list(table.rows)) == 1
