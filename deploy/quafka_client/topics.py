"""Topics: list, describe, create, grow and delete them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quafka_client import configs, offsets
from quafka_client.cluster import ClientCluster
from quafka_client.configs import Config, ConfigResourceKind
from quafka_client.errors import RequestRefusedError, check
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.configs import DescribeConfigsRequest
from quafka_proto.schema.metadata import MetadataResponseTopic
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from quafka_proto.schema.quafka import DescribeCompactionRequest, DescribeCompactionResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_AGAIN_SECONDS = 0.2
_NOT_LED_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
IDENTITY = ("quafka.id", "quafka.slug", "quafka.rrl")
"""The read-only configs with a topic's identity in Quafka."""


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in a list."""

    name: str
    partitions: int
    replicas: int
    internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDetails:
    """A partition. `records`: the number between log start offset and high watermark.

    None if offsets have gaps because another system stores the records.
    """

    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    log_start_offset: int
    high_watermark: int
    records: int | None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of a partition; bytes are estimates.

    `dirty_bytes`: those that the next pass may compact; `due`: whether it includes the partition;
    `last_ms`: when the last pass ended, None: there was none since the broker's start;
    `bytes_before` and `bytes_after`: the bytes that the last pass read, and those that it left.
    """

    partition: int
    clean_bytes: int
    dirty_bytes: int
    due: bool
    last_ms: int | None
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic. `uuid`: Kafka's topic id. `id`, `slug`, `rrl`: Quafka's; None for other servers.

    `configs`: None if the server does not report them. `compaction`: empty if the topic is not
    compacted, or the server does not report it.
    """

    name: str
    uuid: str | None
    id: str | None
    slug: str | None
    rrl: str | None
    internal: bool
    partitions: list[PartitionDetails]
    configs: list[Config] | None
    compaction: list[Compaction]


async def summaries(cluster: ClientCluster) -> list[TopicSummary]:
    """All topics, by name. Raises ClientError."""
    return [_summary(topic) for topic in await listed(cluster)]


async def listed(cluster: ClientCluster) -> list[MetadataResponseTopic]:
    """All topics with their partitions, by name. Raises ClientError."""
    found = (await cluster.metadata(None)).topics
    for topic in found:
        check(topic.error_code, f"topic {topic.name!r}")
    return sorted(found, key=lambda each: each.name or "")


def _summary(topic: MetadataResponseTopic) -> TopicSummary:
    replicas = max((len(each.replica_nodes) for each in topic.partitions), default=0)
    return TopicSummary(topic.name or "", len(topic.partitions), replicas, topic.is_internal)


async def describe(cluster: ClientCluster, name: str) -> TopicDetails:
    """One topic with its partitions and configs. Raises ClientError."""
    topic = await cluster.topic(name)
    starts = await offsets.list_offsets(cluster, topic, offsets.START)
    ends = await offsets.list_offsets(cluster, topic, offsets.END)
    known: list[Config] | None = None
    if cluster.any.has(DescribeConfigsRequest):
        known = (await configs.describe(cluster, ConfigResourceKind.TOPIC, [name]))[name]
    values = {config.name: config.value for config in known or ()}
    return TopicDetails(
        name,
        uuid_text(topic.topic_id),
        values.get("quafka.id"),
        values.get("quafka.slug"),
        values.get("quafka.rrl"),
        topic.is_internal,
        [
            PartitionDetails(
                each.partition_index,
                each.leader_id,
                each.replica_nodes,
                each.isr_nodes,
                starts[each.partition_index],
                ends[each.partition_index],
                None
                if values.get("quafka.source")
                else ends[each.partition_index] - starts[each.partition_index],
            )
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ],
        None if known is None else [c for c in known if c.name not in IDENTITY],
        await compaction_of(cluster, name),
    )


async def compaction_of(cluster: ClientCluster, name: str) -> list[Compaction]:
    """The compaction of a topic's partitions, where the server reports it. Raises ClientError."""
    if not cluster.any.has(DescribeCompactionRequest):
        return []
    request = DescribeCompactionRequest(topic=name)
    answer = await cluster.call(request, DescribeCompactionResponse)
    check(answer.error_code, f"topic {name!r}")
    return [
        Compaction(
            each.partition_index,
            each.clean_bytes,
            each.dirty_bytes,
            each.due,
            None if each.last_ms < 0 else each.last_ms,
            each.bytes_before,
            each.bytes_after,
        )
        for each in answer.partitions
    ]


def uuid_text(uuid: bytes) -> str | None:
    """A topic's id in Kafka's notation; None for the zero id."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=") if any(uuid) else None


async def create(
    cluster: ClientCluster,
    name: str,
    partitions: int,
    replicas: int,
    values: Mapping[str, str],
    *,
    validate_only: bool,
) -> CreatableTopicResult:
    """Create a topic; -1 partitions or replicas: the server's default.

    Returns the server's answer, which has the topic's error. Raises ClientError.
    """
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                configs=[CreatableTopicConfig(name=key, value=v) for key, v in values.items()],
            )
        ],
        timeout_ms=round(cluster.timeout * 1000),
        validate_only=validate_only,
    )
    return (await cluster.call(request, CreateTopicsResponse)).topics[0]


async def led(cluster: ClientCluster, name: str, partitions: int) -> MetadataResponseTopic:
    """A topic that was just created or grown, as soon as the leaders of its partitions answer.

    Kafka's brokers learn of new partitions one after the other. Raises ClientError.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + cluster.timeout
    while True:
        found = await cluster.topic(name, auto_create=True)
        try:
            if len(found.partitions) >= partitions:
                await offsets.list_offsets(cluster, found, offsets.END)
                return found
        except RequestRefusedError as e:
            if e.code not in _NOT_LED_YET or loop.time() >= give_up:
                raise
        if loop.time() >= give_up:
            return found
        await asyncio.sleep(_AGAIN_SECONDS)


async def delete(cluster: ClientCluster, names: Sequence[str]) -> dict[str, tuple[int, str | None]]:
    """Delete topics; return each one's error code and message. Raises ClientError."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=round(cluster.timeout * 1000),
    )
    answer = await cluster.call(request, DeleteTopicsResponse)
    return {each.name or "": (each.error_code, each.error_message) for each in answer.responses}


async def add_partitions(
    cluster: ClientCluster, name: str, total: int, *, validate_only: bool
) -> None:
    """Grow a topic to `total` partitions. Raises ClientError."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=total, assignments=None)],
        timeout_ms=round(cluster.timeout * 1000),
        validate_only=validate_only,
    )
    (result,) = (await cluster.call(request, CreatePartitionsResponse)).results
    check(result.error_code, f"topic {name!r}", result.error_message)
