"""What the broker writes about itself is bounded; what an earlier version wrote is read anyway."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import msgpack  # type: ignore[import-untyped]
import pytest

from quafka_broker.groups import event_codec
from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.event_codec import EventAssembler, encode
from quafka_broker.groups.table import Commit, Committed, Event
from quafka_broker.journals.event_batches import BATCH_BYTES
from quafka_broker.journals.internal_topics import GROUPS, REGISTRY
from quafka_broker.ops import topics as topic_ops
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_broker.topics.events import encode_event, topic_created
from quafka_broker.topics.identity import new_topic_identity
from quafka_mesh_ops.ops.topics import CreateTopic
from quafka_proto.compression import DECOMPRESSED_LIMIT
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches
from quafka_proto.schema.topics import CreatableTopicConfig
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, ORG, context, running_state


async def batch_sizes(state: BrokerState, partition: Partition) -> list[int]:
    """The bytes of every batch that is in an internal topic."""
    batches = await state.log.reader.read(
        partition, partition.log_start, EVERYTHING, at_least_one=True
    )
    return [len(batch) for batch in batches]


async def append_as_before(state: BrokerState, partition: Partition, *events: bytes) -> None:
    """All events of one change in one batch, however large: as was done before the bound."""
    records = [Record(0, 1_000, None, event, []) for event in events]
    await state.log.queue.append(partition, split_batches(build_batch(records)))


@pytest.mark.long
async def test_a_registry_event_of_any_size_is_read() -> None:
    """A config that was once taken: "delete", ten million times, is a list of known policies."""
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic = state.registry.plan_topic(
            ORG, "t", 3, new_topic_identity(), {"cleanup.policy": "delete"}
        )
        policies = b"delete," * (DECOMPRESSED_LIMIT // 7) + b"delete"
        event = encode_event(topic_created(topic)).replace(b"delete", policies)
        await append_as_before(state, state.log.partitions.get(REGISTRY), event)
    async with running_state(disk) as state:
        found = state.registry.by_name(ORG, "t")
        assert found is not None
        assert found.partitions == 3


@pytest.mark.parametrize("count", [0, 1, 200])
def test_short_events_have_the_same_bytes_as_long_ones(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = {("t", n): Committed(7, n, -1, "m" * n, 1_000) for n in range(count)}
    members = [{"assignment": b"a", "protocols": {"range": b"x"}}] * count
    events: list[Event] = [
        {"event": "offsets", "org": 1, "group": "g", "offsets": Commit.of(offsets)},
        {"event": "group", "org": 1, "group": "g", "protocol": None, "members": members},
        {"event": "offsets_deleted", "org": 1, "group": "g", "partitions": [["t", 1]] * count},
    ]
    short = [b"".join(encode(event)) for event in events]
    monkeypatch.setattr(event_codec, "_SHORT_BYTES", -1)
    assert [b"".join(encode(event)) for event in events] == short


@pytest.mark.parametrize("size", [60_000, 100_000, 3_000_000])
def test_what_members_send_each_other_is_written_as_msgpack_does(size: int) -> None:
    protocols = {"range": bytes(size), "other": b"x"}
    members = [
        {"id": name, "protocols": protocols, "assignment": name.encode() * size} for name in "ab"
    ]
    event: Event = {"event": "group", "org": 1, "group": "g", "members": members}
    assembler = EventAssembler()
    found = [assembler.feed(at, value) for at, value in enumerate(encode(event))]
    assert found == [None] * (len(found) - 1) + [(0, event)]
    values = list(encode(event))
    parts = [value[6:] for value in values] if len(values) > 1 else values
    assert b"".join(parts) == b"\x01" + msgpack.packb(event)


async def test_a_list_of_policies_without_end_is_refused() -> None:
    async with running_state(MemoryDisk()) as state:
        entry = CreatableTopicConfig("cleanup.policy", "delete" + ",delete" * 1_000)
        answer = await topic_ops.create(state, context(), CreateTopic("t", configs=[entry]))
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert len(answer.error_message) < 2_000


@pytest.mark.long
async def test_the_batches_of_the_registry_are_bounded() -> None:
    """One DeleteRecords of many partitions, and the registry said anew with it."""
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        topic, _ = await state.topics.create(ORG, "t", 40_000)
        wanted = dict.fromkeys(range(40_000), 1 << 60)
        registry = state.log.partitions.get(REGISTRY)
        await state.topics.delete_records({topic: wanted})
        assert max(await batch_sizes(state, registry)) < BATCH_BYTES + 1_000
        state.journal.events_kept = 1
        for _ in range(10):
            again, _ = await state.topics.create(ORG, "u", 1)
            await state.topics.delete(again)
        assert registry.log_start > 0
        assert max(await batch_sizes(state, registry)) < BATCH_BYTES + 1_000
    async with running_state(disk, lease_seconds=0) as state:
        assert state.registry.log_starts(topic) == wanted


# --- consumer groups ------------------------------------------------------------------------


@pytest.mark.long
async def test_an_offset_commit_of_72_mb_from_an_earlier_version_is_read() -> None:
    """One event of JSON in one batch, as one OffsetCommit of 18,000 partitions once made it."""
    disk = MemoryDisk()
    rows = [["t", 0, number, 7, -1, "x" * 4_000, 1_000] for number in range(18_000)]
    event = {"event": "offsets", "org": ORG, "group": "g", "offsets": rows}
    value = json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
    assert len(value) > DECOMPRESSED_LIMIT
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 18_000)
        await append_as_before(state, state.log.partitions.get(GROUPS), value)
    async with running_state(disk, lease_seconds=0) as state:
        kept = state.groups.find(ORG, "g")
        assert kept is not None
        assert len(kept.offsets) == 18_000
        assert kept.offsets["t", 17_999] == Committed(0, 7, -1, "x" * 4_000, 1_000)
        # What is said again is bounded, and then the old batch is dead.
        partition = state.log.partitions.get(GROUPS)
        old_end = partition.high_watermark
        await state.groups.journal._restate()
        assert partition.log_start >= old_end
        assert max(await batch_sizes(state, partition)) < BATCH_BYTES + 10_000
    async with running_state(disk, lease_seconds=0) as state:
        kept = state.groups.find(ORG, "g")
        assert kept is not None
        assert len(kept.offsets) == 18_000


def _joined(members: int, metadata: bytes, *, in_hex: bool) -> dict[str, object]:
    """What is stored of a group of so many members."""

    def form(data: bytes) -> object:
        return data.hex() if in_hex else data

    return {
        "event": "group", "org": ORG, "group": "g", "since_ms": 5, "state": "Stable",
        "generation": 3, "protocol_type": "consumer", "protocol": "range", "leader": "m-0",
        "members": [
            {
                "id": f"m-{number}", "instance_id": "", "client_id": "c", "client_host": "/h",
                "session": 10.0, "rebalance": 10.0, "protocols": {"range": form(metadata)},
                "assignment": form(b"%d" % number),
            }
            for number in range(members)
        ],
    }  # fmt: skip


@pytest.mark.long
async def test_a_group_of_32_mb_is_read_in_the_old_form_and_in_the_new() -> None:
    """2,000 members of 16 KB each: 64 MB of hex once, 32 MB in parts now."""
    metadata = bytes(range(256)) * 64
    old = json.dumps(_joined(2_050, metadata, in_hex=True), separators=(",", ":")).encode()
    assert len(old) > DECOMPRESSED_LIMIT
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await append_as_before(state, state.log.partitions.get(GROUPS), old)
    for _ in ("the old form", "the new one"):
        async with running_state(disk, lease_seconds=0) as state:
            kept = state.groups.find(ORG, "g")
            assert kept is not None
            assert isinstance(kept.group, ClassicGroup)
            assert kept.group.generation == 3
            assert len(kept.group.members) == 2_050
            member = kept.group.members["m-2049"]
            assert (member.protocols, member.assignment) == ({"range": metadata}, b"2049")
            partition = state.log.partitions.get(GROUPS)
            old_end = partition.high_watermark
            await state.groups.journal._restate()
            assert partition.log_start == old_end
            sizes = await batch_sizes(state, partition)
            assert max(sizes) < BATCH_BYTES + 1_000
            assert sum(sizes) < 2_050 * (len(metadata) + 300)


@pytest.mark.parametrize("missing", ["the last part", "a part in between", "nothing"])
async def test_parts_are_taken_together_or_not_at_all(missing: str) -> None:
    disk = MemoryDisk()
    event = _joined(200, bytes(16_000), in_hex=False)
    parts = list(encode(event))
    assert len(parts) == 4
    after = list(encode({**_joined(1, b"m", in_hex=False), "group": "h"}))
    if missing != "nothing":
        del parts[-1 if missing == "the last part" else 1]
    async with running_state(disk, lease_seconds=0) as state:
        await append_as_before(state, state.log.partitions.get(GROUPS), *parts, *after)
    async with running_state(disk, lease_seconds=0) as state:
        assert (state.groups.find(ORG, "g") is not None) == (missing == "nothing")
        assert state.groups.find(ORG, "h") is not None


async def test_long_events_are_written_in_turns_and_keep_their_order() -> None:
    """Others have their turn while a long event is encoded; no later event overtakes it."""
    disk = MemoryDisk()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def note(number: int, _: asyncio.Future[list[int]]) -> None:
        told.append(number)

    def offsets_of(count: int, offset: int) -> dict[tuple[str, int], Committed]:
        return {("t", p): Committed(0, offset, -1, "x" * 4_000, 1_000) for p in range(count)}

    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 2_000)
        told: list[int] = []
        pending: list[asyncio.Future[list[int]]] = []
        for number, count in enumerate((1, 2_000, 1, 1, 2_000, 1)):
            commit = state.groups.offsets.commit(ORG, "g", Commit.of(offsets_of(count, number)))
            pending.append(commit)
            pending[-1].add_done_callback(partial(note, number))
        busy = asyncio.create_task(others())
        await asyncio.gather(*pending)
        busy.cancel()
        assert told == sorted(told)
        assert turns > 12
        kept = state.groups.find(ORG, "g")
        assert kept is not None
        assert kept.offsets["t", 0].offset == 5
        assert kept.offsets["t", 1].offset == 4
    async with running_state(disk, lease_seconds=0) as state:
        kept = state.groups.find(ORG, "g")
        assert kept is not None
        assert kept.offsets["t", 0].offset == 5
        assert kept.offsets["t", 1].offset == 4


async def test_a_long_event_that_the_log_refuses_is_not_there() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 1_000)
        disk.room = 0
        offsets = {("t", p): Committed(0, 1, -1, "x" * 4_000, 1_000) for p in range(1_000)}
        with pytest.raises(StorageError):
            await state.groups.offsets.commit(ORG, "g", Commit.of(offsets))
        assert state.groups.find(ORG, "g") is None
        disk.room = None
        await state.groups.offsets.commit(ORG, "g", Commit.of(offsets))
        assert state.groups.find(ORG, "g") is not None
