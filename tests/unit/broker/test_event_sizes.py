"""What the broker writes about itself is bounded; what an earlier version wrote is read anyway."""

from __future__ import annotations

from quafka_broker import topics
from quafka_broker.event_batches import BATCH_BYTES
from quafka_broker.ops import topics as topic_ops
from quafka_broker.state import BrokerState
from quafka_broker.virtual_topics import VirtualTopic
from quafka_mesh_ops.ops import ConfigEntry, CreateTopic
from quafka_proto.compression import DECOMPRESSED_LIMIT
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, ORG, context, running_state


async def batch_sizes(state: BrokerState, virtual: VirtualTopic) -> list[int]:
    """The bytes of every batch that is in an internal topic."""
    batches = await state.log.read(virtual, virtual.log_start, EVERYTHING, at_least_one=True)
    return [len(batch) for batch in batches]


async def append_as_before(state: BrokerState, virtual: VirtualTopic, *events: bytes) -> None:
    """All events of one change in one batch, however large: as was done before the bound."""
    records = [Record(0, 1_000, None, event, []) for event in events]
    await state.log.append(virtual, split_batches(build_batch(records)))


async def test_a_registry_event_of_any_size_is_read() -> None:
    """A config that was once taken: "delete", ten million times, is a list of known policies."""
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic = state.registry.plan_topic(ORG, "t", 3, {"cleanup.policy": "delete"})
        policies = b"delete," * (DECOMPRESSED_LIMIT // 7) + b"delete"
        event = topics.encode_event(topics.created(topic)).replace(b"delete", policies)
        await append_as_before(state, state.log.topic(topics.REGISTRY), event)
    async with running_state(disk) as state:
        found = state.registry.by_name(ORG, "t")
        assert found is not None
        assert found.partitions == 3


async def test_a_list_of_policies_without_end_is_refused() -> None:
    async with running_state(MemoryDisk()) as state:
        entry = ConfigEntry("cleanup.policy", "delete" + ",delete" * 1_000)
        answer = await topic_ops.create(state, context(), CreateTopic("t", configs=[entry]))
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert len(answer.error_message) < 2_000


async def test_the_batches_of_the_registry_are_bounded() -> None:
    """One DeleteRecords of many partitions, and the registry said anew with it."""
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        topic, _ = await state.create_topic(ORG, "t", 40_000)
        wanted = dict.fromkeys(range(40_000), 1 << 60)
        registry = state.log.topic(topics.REGISTRY)
        await state.delete_records({topic: wanted})
        assert max(await batch_sizes(state, registry)) < BATCH_BYTES + 1_000
        state.events_kept = 1
        await state.create_topic(ORG, "u", 1)
        assert registry.log_start > 0
        assert max(await batch_sizes(state, registry)) < BATCH_BYTES + 1_000
    async with running_state(disk, lease_seconds=0) as state:
        assert state.registry.log_starts(topic) == wanted
