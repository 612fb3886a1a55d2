"""Compares the registry and the groups of a restored log with the snapshot's manifest.

The log is opened as a broker opens it. One org's part of a log has no registry and no groups'
journal, because their events concern all orgs. They are rebuilt from the manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups import event_codec
from quafka_broker.groups.table import Committed, offsets_event
from quafka_broker.journals import event_batches
from quafka_broker.journals.internal_topics import GROUPS, REGISTRY
from quafka_broker.leases import Leases
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.state import BrokerState
from quafka_broker.topics.events import (
    Event,
    encode_event,
    log_starts_moved,
    snapshot_parts,
    topic_created,
)
from quafka_broker.topics.identity import new_topic_identity
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic as RegisteredTopic
from quafka_broker.transactions.producer_ids import producer_id_space
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_proto.records import BatchHeader, empty_batch, read_header
from quafka_proto.snapshot_format import (
    SnapshotCommittedOffset,
    SnapshotGroup,
    SnapshotManifest,
    SnapshotTopic,
)

SKIPPED_PRODUCER_IDS = 1 << 25
"""A restore skips this many ids, which may have been assigned since the snapshot: two producers
with the same id would pass for one. An hour of a thousand new producers per second uses a tenth of
them; a cluster has ids for 128 restores."""

_SEGMENT_BYTES = 1 << 30
_OFFSETS_PER_EVENT = 1_000


async def make_startable(
    wal: Path, manifest: SnapshotManifest, *, is_part: bool, fill: bool
) -> list[str]:
    """Open the log in a folder, compare it with the manifest, and leave it with a checkpoint.

    Args:
        is_part: the log has only one org's entries; `manifest` has this org's topics and groups.
        fill: records and events may be missing. Topics and commits of the manifest are put back,
            and offsets that would be reused are filled.

    Transactional producers are fenced, and their transactions that were open at the cut are
    aborted.

    Returns: the differences from the manifest before these changes.

    Raises:
        DamagedLogError, BadRegistryError, StorageError: the log cannot be opened.
        OSError: a file cannot be read or written.
    """
    log = Log(RealDisk(wal), FsyncPolicy(), _SEGMENT_BYTES)
    # No gateway reads this log yet, so no lease can be outstanding.
    state = BrokerState(BrokerConfig(data=wal.parent), log, leases=Leases(0))
    await asyncio.to_thread(log.open, state.producers)
    log.start()
    if manifest.evicted is not None:  # else any producer without live records may have been evicted
        state.producers.evictions_unknown = False
        state.producers.load_evicted((org, below) for org, below in manifest.evicted)
    try:
        if is_part:
            await _record(log, manifest)
        await state.replay_registry()
        await state.replay_groups()
        await state.producer_ids.skip(SKIPPED_PRODUCER_IDS)
        if fill:
            await _put_back(state, manifest)
            await _fill(log, manifest)
        differences = list(_differences(state, manifest))
        await _fence_transactions(state)
        return differences
    finally:
        await log.close()


async def _fence_transactions(state: BrokerState) -> None:
    """Begin a new session of every transactional id, which fences its producer and aborts.

    A producer's records since the cut are gone. If it continued, its next commit would expose a
    part of its transaction, and it would not read its inputs again from the restored offsets.
    """
    await state.replay_transactions()  # aborts transactions that no transactional id knows
    for key in list(state.transactions.table.entries):
        await state.transactions.coordinator.fence(key)


# --- one org ------------------------------------------------------------------------------------


async def _record(log: Log, manifest: SnapshotManifest) -> None:
    """Append the events that rebuild the registry and the groups."""
    # Entries of deleted topics have generations, too: no new topic may reuse one of these.
    generation = max((id_.generation for id_ in log.partitions.ids()), default=-1) + 1
    ours = producer_id_space(manifest.cluster_id)
    used = [id_ for id_ in (manifest.producer_ids_up_to,) if id_ in ours]
    events = _registry_events(manifest, generation, max(used, default=ours.start))
    parts = map(encode_event, snapshot_parts(events))
    await _append(log, REGISTRY, parts, most=1)
    groups = (
        event
        for group in manifest.groups
        for event in _group_events(group, group.offsets, manifest)
    )
    await _append(log, GROUPS, (value for event in groups for value in event_codec.encode(event)))


async def _append(log: Log, id_: PartitionId, values: Iterable[bytes], most: int = 1_000) -> None:
    for batches in event_batches.batches(values, clock.time_ns() // 1_000_000, most):
        await log.queue.append(log.partitions.get(id_), batches)


def _registry_events(manifest: SnapshotManifest, generation: int, producer_ids: int) -> list[Event]:
    registry = Registry()
    registry.apply({"event": "cluster", "id": manifest.cluster_id})
    registry.apply({"event": "producer_ids", "up_to": producer_ids})
    registry.apply({"event": "generations", "from": generation})
    for topic in manifest.topics:
        registry.apply(topic_created(_registered(registry, topic, manifest.cut_ms)))
        made = registry.by_name(topic.org, topic.name)
        assert made is not None
        for event in log_starts_moved(made, _starts(topic)):
            registry.apply(event)
    return list(registry.restate())


def _registered(registry: Registry, topic: SnapshotTopic, cut_ms: int) -> RegisteredTopic:
    new = registry.plan_topic(topic.org, topic.name, len(topic.partitions), new_topic_identity())
    return RegisteredTopic(
        topic.org, topic.name, bytes.fromhex(topic.uuid), topic.ulid or new.ulid,
        topic.slug or new.slug, topic.generation, len(topic.partitions),
        topic.created_ms or cut_ms, dict(topic.configs),
    )  # fmt: skip


def _starts(topic: SnapshotTopic) -> dict[int, int]:
    return {p.partition: p.log_start for p in topic.partitions if p.log_start}


def _group_events(
    group: SnapshotGroup, offsets: Iterable[SnapshotCommittedOffset], manifest: SnapshotManifest
) -> Iterator[Event]:
    places: dict[tuple[str, int], Committed] = {}
    for at in offsets:
        topic = manifest.topic(group.org, at.topic)
        incarnation = at.topic_id or (topic.generation if topic is not None else None)
        if (
            incarnation is None
        ):  # a topic of another broker, in a snapshot by a version that did not record its id
            continue
        places[at.topic, at.partition] = Committed(
            incarnation, at.offset, at.leader_epoch, at.metadata, at.committed_ms
        )
        if len(places) >= _OFFSETS_PER_EVENT:
            yield offsets_event((group.org, group.group), places)
            places = {}
    if places:
        yield offsets_event((group.org, group.group), places)


# --- damage -------------------------------------------------------------------------------------


async def _put_back(state: BrokerState, manifest: SnapshotManifest) -> None:
    """Put back topics and committed offsets that are missing, or older because of damage."""
    for topic in manifest.topics:
        found = state.registry.by_name(topic.org, topic.name)
        if found is None or not _is_same(found, topic):
            found = _registered(state.registry, topic, manifest.cut_ms)
            await state.topics.put_back(found)
        await state.topics.delete_records({found: _starts(topic)})
    for group in manifest.groups:
        for event in _group_events(group, _lacking(state, group), manifest):
            await state.groups.journal.append(event)


async def _fill(log: Log, manifest: SnapshotManifest) -> None:
    """Fill the offsets of a partition's missing last records, so that they are not reused."""
    for topic in manifest.topics:
        for saved in topic.partitions:
            partition = log.partitions.get(_partition_id(topic, saved.partition))
            missing = saved.high_watermark - partition.high_watermark
            if missing > 0:
                await log.queue.append(partition, [_filler(missing)])


def _filler(offsets: int) -> tuple[BatchHeader, memoryview]:
    """An empty batch that covers this number of offsets and ids."""
    batch = empty_batch(0, offsets)
    return read_header(batch)._replace(record_count=offsets), memoryview(batch)


# --- comparison ---------------------------------------------------------------------------------


def _partition_id(topic: SnapshotTopic, partition: int) -> PartitionId:
    return PartitionId(topic.org, bytes.fromhex(topic.topic_hash), partition, topic.generation)


def _differences(state: BrokerState, manifest: SnapshotManifest) -> Iterator[str]:
    if state.registry.cluster_id != manifest.cluster_id:
        yield f"the cluster is {state.registry.cluster_id}, not {manifest.cluster_id}"
    for topic in manifest.topics:
        yield from _topic_differences(state, topic)
    for group in manifest.groups:
        for at in _lacking(state, group):
            yield (
                f"group {group.group} of org {group.org} has no offset {at.offset} in "
                f"{at.topic}-{at.partition}"
            )


def _lacking(state: BrokerState, group: SnapshotGroup) -> list[SnapshotCommittedOffset]:
    """A group's offsets that differ from the snapshot's."""
    known = state.groups.offsets.of((group.org, group.group))
    return [
        at
        for at in group.offsets
        if (found := known.get((at.topic, at.partition))) is None
        or (found.offset, found.metadata) != (at.offset, at.metadata)
    ]


def _is_same(found: RegisteredTopic, topic: SnapshotTopic) -> bool:
    facts = (found.uuid.hex(), found.generation, found.partitions, found.configs)
    return facts == (topic.uuid, topic.generation, len(topic.partitions), topic.configs)


def _topic_differences(state: BrokerState, topic: SnapshotTopic) -> Iterator[str]:
    name = f"topic {topic.name} of org {topic.org}"
    found = state.registry.by_name(topic.org, topic.name)
    if found is None:
        yield f"{name} is not in the registry"
        return
    if not _is_same(found, topic):
        yield f"{name} has another id, configs or number of partitions"
    for partition in topic.partitions:
        expected = partition.log_start, partition.high_watermark
        offsets = state.log.partitions.offsets(found.partition_id(partition.partition))
        if offsets != expected:
            yield (
                f"{topic.name}-{partition.partition} of org {topic.org} has the offsets "
                f"{offsets[0]} to {offsets[1]}, not {expected[0]} to {expected[1]}"
            )
