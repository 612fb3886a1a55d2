"""The table of all span, event and attribute names of the product's traces.

The messaging conventions of OpenTelemetry are still in development and rename attributes. As they
require, `OTEL_SEMCONV_STABILITY_OPT_IN` chooses: `messaging` for the names of `NEW_VERSION`,
`messaging/dup` for both, any other value for those of `VERSION`. The exporter renames, so the code
uses one name for each attribute.
"""

from __future__ import annotations

from collections.abc import Mapping

VERSION = "1.44.0"
NEW_VERSION = "1.45.0"
SCHEMA_URL = "https://opentelemetry.io/schemas/"
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"

# --- spans ----------------------------------------------------------------------------------
# Spans that Rafka has, too (seed 1), keep its names, so dashboards carry over.

CONNECT = "gateway.kafka.connect"
REQUEST = "gateway.kafka.request"
GATEWAY_FETCH = "rafka.gateway.kafka.fetch"
GATEWAY_PRODUCE = "rafka.gateway.kafka.produce"
GATEWAY_SHARE_FETCH = "gateway.kafka.share_fetch"
GATEWAY_SHARE_ACKNOWLEDGE = "gateway.kafka.share_acknowledge"
GATEWAY_LIST_OFFSETS = "rafka.gateway.kafka.list_offsets"
CACHE = "gateway.fetch.cache"
FILL = "gateway.fetch.fill"
GATEWAY_PARK = "gateway.fetch.park"
ENCODE = "gateway.kafka.encode"
WRITE = "gateway.kafka.write"
SENT = "mesh.kafkaop.sent"
QUEUED = "mesh.kafkaop.queued"
HANDLE = "mesh.kafkaop.handle"
FETCH_PARK = "broker.fetch.park"
FETCH_READ = "rafka.broker.fetch.read"
WAL_INDEX = "broker.wal.index"
WAL_READ = "broker.wal.read"
LIST_OFFSETS_READ = "rafka.broker.list_offsets.read"
STORE = "broker.produce.store"
SHARE_ACQUIRE = "broker.share.acquire"
SHARE_PARK = "broker.share.park"
SHARE_ACKNOWLEDGE = "broker.share.acknowledge"
COMMIT = "broker.wal.commit"
WAL_WRITE = "broker.wal.write"
WAL_FSYNC = "broker.wal.fsync"
WAL_PUT = "broker.wal.put"
ACK = "kafkaop.ack"
ACK_RECEIVED = "kafkaop.ack_received"
GROUP_PARK = "broker.group.park"
GROUP_HEARTBEAT = "broker.group.heartbeat"
TAKE_OVER = "broker.shard.take_over"
SHARD_LOOK = "broker.shard.look"
SHARD_PROBE = "broker.shard.probe"
SHARD_LIST = "broker.shard.list"
SHARD_CLAIM = "broker.shard.claim"
SHARD_FENCE = "broker.shard.fence"
SHARD_VERIFY = "broker.shard.verify"
SHARD_READ_AHEAD = "broker.shard.read_ahead"
SHARD_MATERIALISE = "broker.shard.materialise"
SHARD_REPLAY = "broker.shard.replay"
SHARD_START = "broker.shard.start"
GIVE_UP = "broker.shard.give_up"
SHARD_PREPARE = "broker.shard.prepare"
SHARD_DRAIN = "broker.shard.drain"
SHARD_CLOSE = "broker.shard.close"
SHARD_RELEASE = "broker.shard.release"
SHARD_AWAIT_OWNER = "broker.shard.await_owner"

# --- events ---------------------------------------------------------------------------------

KAFKA_ERROR = "kafka.error"
MALFORMED = "malformed request"
CANCELLED = "cancelled"
AUDIT = "audit"
PARTITION = "kafka.partition"

# --- attributes: OpenTelemetry's ------------------------------------------------------------

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION_ID = "messaging.destination.partition.id"
CLIENT_ID = "messaging.client.id"
GROUP = "messaging.consumer.group.name"
MESSAGE_COUNT = "messaging.batch.message_count"
CLUSTER_ID = "messaging.kafka.cluster.id"
ERROR_TYPE = "error.type"
PEER_ADDRESS = "network.peer.address"
PEER_PORT = "network.peer.port"

# --- attributes: Rafka's --------------------------------------------------------------------

VIRTUAL_TOPIC = "virtual_topic"
FETCH_OFFSET = "fetch_offset"
RETURNED_COUNT = "returned_count"
HIGH_WATERMARK = "high_watermark"

# --- attributes: ours -----------------------------------------------------------------------

API_VERSION = "kafka.api.version"
CORRELATION_ID = "kafka.correlation_id"
ACKS = "kafka.acks"
BASE_OFFSET = "kafka.base_offset"
LAST_OFFSET = "kafka.last_offset"
GENERATION = "kafka.group.generation"
MEMBERS = "kafka.group.members"
MEMBER_EPOCH = "kafka.group.member_epoch"
PARTITIONS = "kafka.partitions"
TOPIC_ID = "kafka.topic_id"
COMMITTED = "kafka.transaction.committed"
LEADER_EPOCH = "kafka.leader_epoch"
PRODUCER_ID = "kafka.producer_id"
TRANSACTIONAL_ID = "kafka.transactional_id"
REASON = "quafka.reason"
SAMPLED_BY = "quafka.sampled_by"
CONNECTION = "quafka.connection.id"
OP = "quafka.op"
ORG = "quafka.org.id"
PARKED_MS = "quafka.parked_ms"
SHARD = "quafka.shard"
SHARD_EPOCH = "quafka.shard.epoch"
PREVIOUS_OWNER = "quafka.shard.previous_owner"
NEXT_OWNER = "quafka.shard.next_owner"
NODE = "quafka.node.id"
STORE_OBJECTS = "quafka.store.objects"
STORE_BYTES = "quafka.store.bytes"
REPLAYED_BYTES = "quafka.replayed_bytes"
LATENCY_MS = "quafka.latency_ms"
CACHE_HITS = "quafka.cache.partitions"
CACHE_BYTES = "quafka.cache.bytes"
SHARED = "quafka.shared"
FROM_DISK = "quafka.read.from_disk"
COMMIT_APPENDS = "quafka.commit.appends"
COMMIT_BYTES = "quafka.commit.bytes"
RECORD_BYTES = "quafka.record_bytes"
PRINCIPAL = "quafka.principal"
OUTCOME = "quafka.audit.outcome"

OPERATION_TYPES = {
    "Produce": "send",
    "Fetch": "receive",
    "ShareFetch": "receive",
    "OffsetCommit": "settle",
    "TxnOffsetCommit": "settle",
    "ShareAcknowledge": "settle",
}
"""The operation types of the Kafka APIs that have one."""

ATTRIBUTES = frozenset(
    {
        SYSTEM, OPERATION, DESTINATION, PARTITION_ID, TOPIC_ID, COMMITTED, CLIENT_ID,
        GROUP, MESSAGE_COUNT, ERROR_TYPE, OPERATION_TYPE, CLUSTER_ID, RECORD_BYTES,
        PEER_ADDRESS, PEER_PORT, VIRTUAL_TOPIC, FETCH_OFFSET, RETURNED_COUNT, HIGH_WATERMARK,
        API_VERSION, CORRELATION_ID, ACKS, BASE_OFFSET, LAST_OFFSET, GENERATION, MEMBERS,
        MEMBER_EPOCH, PARTITIONS, PRODUCER_ID, TRANSACTIONAL_ID, REASON,
        SAMPLED_BY, CONNECTION, OP, ORG, SHARD, PARKED_MS, LATENCY_MS, CACHE_HITS, CACHE_BYTES,
        SHARED, FROM_DISK, COMMIT_APPENDS, COMMIT_BYTES, PRINCIPAL, OUTCOME, LEADER_EPOCH,
        SHARD_EPOCH, PREVIOUS_OWNER, NEXT_OWNER, NODE, STORE_OBJECTS, STORE_BYTES, REPLAYED_BYTES,
    }
)  # fmt: skip
"""All attributes, by the names of `VERSION`."""

RENAMED = {SYSTEM: "messaging.system.name", CLUSTER_ID: "kafka.cluster.id"}
"""The attributes with another name in `NEW_VERSION`."""


def names(env: Mapping[str, str]) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return the exported names of renamed attributes, and the URL of the schema."""
    chosen = {word.strip() for word in env.get(OPT_IN, "").split(",")}
    if "messaging/dup" in chosen:  # takes precedence
        return {old: (old, new) for old, new in RENAMED.items()}, SCHEMA_URL + VERSION
    if "messaging" in chosen:
        return {old: (new,) for old, new in RENAMED.items()}, SCHEMA_URL + NEW_VERSION
    return {}, SCHEMA_URL + VERSION
