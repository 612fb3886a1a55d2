"""A cut of the log: one point of it, and the broker's state at that point.

A prefix of the log is a consistent cut over every topic, partition and group.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from quafka_broker.groups.group import Place
from quafka_broker.groups.table import Committed, Key
from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.partitions.transactions import PartitionTransactions
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import REDIS
from quafka_broker.topics.topic import Topic as RegisteredTopic
from quafka_broker.wal.cut import LogCut, SegmentCut
from quafka_loop import clock
from quafka_proto.snapshot_format import (
    OpenTransaction,
    SnapshotAbortedTransaction,
    SnapshotCommittedOffset,
    SnapshotGroup,
    SnapshotManifest,
    SnapshotPartition,
    SnapshotTopic,
    decode_manifest,
    encode_manifest,
)

WHOLE_LOG = 0
"""Stands for all orgs."""
PIN = "pin.json"
"""The file in a pin's folder that has the cut."""


class Cut(NamedTuple):
    """The broker's part of the manifest, without pieces, and the segments at the cut."""

    manifest: SnapshotManifest
    segments: list[SegmentCut]


class _StateAtCut(NamedTuple):
    """The broker's state at the instant of a cut, without the log."""

    cut_ms: int
    cluster_id: str
    producer_ids_up_to: int
    evicted: list[tuple[int, int]]
    topics: list[RegisteredTopic]
    copied: dict[PartitionId, tuple[int, int]]
    offsets: list[tuple[Key, list[tuple[Place, Committed]]]]


async def take_cut(state: BrokerState, org: int, hold: Callable[[Cut], None]) -> None:
    """Take a cut, durably, and call `hold` in a thread while the cut's files still exist.

    The event loop is blocked only while partitions and offsets are listed. With an `org` the
    manifest lists only its topics and groups; the segments are still those of the whole log.

    Raises:
        OSError: the log has failed, or `hold` has.
    """

    def at_cut() -> _StateAtCut:
        registry = state.registry
        copied = [topic for topic in registry.every_topic() if topic.source == REDIS]
        return _StateAtCut(
            clock.time_ns() // 1_000_000,
            registry.cluster_id,
            registry.producer_ids_up_to,
            state.producers.dump_evicted(),
            [topic for topic in registry.every_topic() if topic.source in ("", REDIS)],
            {
                topic.partition_id(number): (source.log_start, source.high_watermark)
                for topic in copied
                for number in range(topic.partitions)
                for source in (state.sources.partition(topic, number),)
            },
            state.groups.offsets.of_every_group(),
        )

    def keep(cut: LogCut, found: _StateAtCut) -> None:
        hold(Cut(_manifest(cut, found, org), cut.segments))

    await state.log.cut(at_cut, keep)


def encode_cut(cut: Cut) -> str:
    """Encode the cut as JSON, for `decode_cut`."""
    values = {
        "segments": [list(segment) for segment in cut.segments],
        "manifest": encode_manifest(cut.manifest).decode(),
    }
    return json.dumps(values)


def decode_cut(text: bytes) -> Cut:
    """Read a cut.

    Raises:
        Malformed: it was taken by another version.
    """
    values = json.loads(text)
    segments = [SegmentCut(*segment) for segment in values["segments"]]
    return Cut(decode_manifest(values["manifest"].encode()), segments)


# --- the manifest -----------------------------------------------------------------------------


def _manifest(cut: LogCut, found: _StateAtCut, org: int) -> SnapshotManifest:
    ends = {id_: (log_start, end) for id_, log_start, end in cut.partitions} | found.copied
    return SnapshotManifest(
        id="",
        cut_ms=found.cut_ms,
        cluster_id=found.cluster_id,
        end_id=cut.end_id,
        org=None,
        lease_until_ms=None,
        pieces=[],
        topics=[
            _topic(topic, ends, cut) for topic in found.topics if org in (WHOLE_LOG, topic.org)
        ],
        groups=[
            _group(key, offsets) for key, offsets in found.offsets if org in (WHOLE_LOG, key[0])
        ],
        producer_ids_up_to=found.producer_ids_up_to,
        evicted=[[number, below] for number, below in found.evicted],
    )


def _topic(
    topic: RegisteredTopic,
    ends: dict[PartitionId, tuple[int, int]],
    cut: LogCut,
) -> SnapshotTopic:
    partitions: list[SnapshotPartition] = []
    for number in range(topic.partitions):
        id_ = topic.partition_id(number)
        start, end = ends.get(id_, (0, 0))
        ranges = [[first, last] for first, last in cut.lost.get(id_, ())]
        if topic.source:  # nothing is copied yet; without bounds, offset 0 stands for all offsets
            start, end = (start, end) if end >= 0 else (0, 1)
            missing = [[start, end]] if start < end else []
            partition = SnapshotPartition(number, start, end, end, missing, copied=0)
        else:
            partition = SnapshotPartition(
                number, start, end, end, ranges, gone=cut.gone.get(id_, 0)
            )
        transactions = cut.transactions.get(id_)
        if transactions is not None:
            partition = _with_transactions(partition, transactions)
        partitions.append(partition)
    hash_ = topic_hash(topic.org, topic.name).hex()
    return SnapshotTopic(
        topic.org, topic.name, topic.uuid.hex(), hash_, topic.generation, partitions,
        dict(topic.configs), topic.ulid, topic.slug, topic.created_ms,
    )  # fmt: skip


def _with_transactions(
    partition: SnapshotPartition, transactions: PartitionTransactions
) -> SnapshotPartition:
    first = transactions.first_open
    stable = partition.high_watermark if first is None else max(first, partition.log_start)
    return replace(
        partition,
        last_stable_offset=stable,
        open=list(map(OpenTransaction._make, transactions.open)),
        aborted=list(map(SnapshotAbortedTransaction._make, transactions.every_aborted())),
    )


def _group(key: Key, offsets: list[tuple[Place, Committed]]) -> SnapshotGroup:
    org, name = key
    return SnapshotGroup(
        org,
        name,
        [
            SnapshotCommittedOffset(
                topic,
                partition,
                known.offset,
                known.leader_epoch,
                known.metadata,
                known.at_ms,
                known.incarnation if isinstance(known.incarnation, str) else "",
            )
            for (topic, partition), known in offsets
        ],
    )
