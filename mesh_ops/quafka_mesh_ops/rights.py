"""The rights of a node at a broker, and the right that each op needs.

Only `NEEDS` decides: the mesh server looks up an op here after it has read the envelope and before
it reads the body.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from quafka_mesh_ops.ops.base import OpCode
from quafka_proto.errors import ErrorCode


class MeshRight(StrEnum):
    """The rights that `may=` lists on an allow-list.

    - serve: the daily work of Kafka clients: produce, fetch, groups, descriptions.
    - administer: create, change and delete topics, records, groups and their offsets.
    - snapshot: pin and read the log.
    - coordinate: end transactions over several brokers, as another broker.
    """

    SERVE = "serve"
    ADMINISTER = "administer"
    SNAPSHOT = "snapshot"
    COORDINATE = "coordinate"


class Need(NamedTuple):
    """The right that an op needs, in the envelope's org or in every org.

    `refusal`: the Kafka error code of the answer to a node without the right. Kafka gives the same
    code to a client without the ACL, so clients report it and do not retry.
    """

    right: MeshRight
    refusal: ErrorCode
    every_org: bool = False


_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

NEEDS: dict[int, Need] = {
    OpCode.PRODUCE: Need(MeshRight.SERVE, _TOPIC),
    OpCode.FETCH: Need(MeshRight.SERVE, _TOPIC),
    OpCode.LIST_OFFSETS: Need(MeshRight.SERVE, _TOPIC),
    OpCode.EPOCH_ENDS: Need(MeshRight.SERVE, _TOPIC),
    OpCode.DESCRIBE_TOPICS: Need(MeshRight.SERVE, _TOPIC),  # also with auto_create
    OpCode.DESCRIBE_TOPIC_CONFIGS: Need(MeshRight.SERVE, _TOPIC),
    OpCode.DESCRIBE_PRODUCERS: Need(MeshRight.SERVE, _TOPIC),
    OpCode.DESCRIBE_COMPACTION: Need(MeshRight.SERVE, _TOPIC),
    OpCode.INIT_PRODUCER_ID: Need(MeshRight.SERVE, _CLUSTER),
    OpCode.HOLD_LEASE: Need(MeshRight.SERVE, _CLUSTER),
    OpCode.PROBE: Need(MeshRight.SERVE, _CLUSTER),
    OpCode.OPEN_PLACES: Need(MeshRight.SERVE, _CLUSTER),
    OpCode.LOOK_AT_SHARDS: Need(MeshRight.COORDINATE, _CLUSTER),
    OpCode.DESCRIBE_BROKER: Need(MeshRight.SERVE, _CLUSTER),
    OpCode.DESCRIBE_LOG_DIR: Need(MeshRight.SERVE, _CLUSTER),
    OpCode.JOIN_GROUP: Need(MeshRight.SERVE, _GROUP),
    OpCode.SYNC_GROUP: Need(MeshRight.SERVE, _GROUP),
    OpCode.HEARTBEAT: Need(MeshRight.SERVE, _GROUP),
    OpCode.LEAVE_GROUP: Need(MeshRight.SERVE, _GROUP),
    OpCode.COMMIT_OFFSETS: Need(MeshRight.SERVE, _GROUP),
    OpCode.COMMITTED_OFFSETS: Need(MeshRight.SERVE, _GROUP),
    OpCode.LIST_GROUPS: Need(MeshRight.SERVE, _GROUP),
    OpCode.DESCRIBE_GROUPS: Need(MeshRight.SERVE, _GROUP),
    OpCode.CONSUMER_HEARTBEAT: Need(MeshRight.SERVE, _GROUP),
    OpCode.DESCRIBE_CONSUMER_GROUPS: Need(MeshRight.SERVE, _GROUP),
    OpCode.PREVIOUS_DESCRIBE_CONSUMER_GROUPS: Need(MeshRight.SERVE, _GROUP),
    OpCode.GROUP_LAG: Need(MeshRight.SERVE, _GROUP),
    OpCode.LAG_OF_OFFSETS: Need(MeshRight.SERVE, _GROUP),
    OpCode.INIT_TRANSACTIONS: Need(MeshRight.SERVE, _TRANSACTION),
    OpCode.ADD_PARTITIONS: Need(MeshRight.SERVE, _TRANSACTION),
    OpCode.ADD_OFFSETS: Need(MeshRight.SERVE, _TRANSACTION),
    OpCode.COMMIT_TXN_OFFSETS: Need(MeshRight.SERVE, _TRANSACTION),
    OpCode.END_TRANSACTION: Need(MeshRight.SERVE, _TRANSACTION),
    OpCode.DESCRIBE_TRANSACTIONS: Need(MeshRight.SERVE, _TRANSACTION),
    OpCode.LIST_TRANSACTIONS: Need(MeshRight.SERVE, _TRANSACTION),
    OpCode.JOIN_TRANSACTION: Need(MeshRight.COORDINATE, _CLUSTER),
    OpCode.FINISH_TRANSACTIONS: Need(MeshRight.COORDINATE, _CLUSTER),
    OpCode.RESOLVE_TRANSACTIONS: Need(MeshRight.COORDINATE, _CLUSTER),
    OpCode.WRITE_MARKERS: Need(MeshRight.ADMINISTER, _CLUSTER),
    OpCode.CREATE_TOPIC: Need(MeshRight.ADMINISTER, _TOPIC),
    OpCode.DELETE_TOPIC: Need(MeshRight.ADMINISTER, _TOPIC),
    OpCode.CREATE_PARTITIONS: Need(MeshRight.ADMINISTER, _TOPIC),
    OpCode.ALTER_TOPIC_CONFIGS: Need(MeshRight.ADMINISTER, _TOPIC),
    OpCode.DELETE_RECORDS: Need(MeshRight.ADMINISTER, _TOPIC),
    OpCode.DELETE_OFFSETS: Need(MeshRight.ADMINISTER, _GROUP),
    OpCode.DELETE_GROUPS: Need(MeshRight.ADMINISTER, _GROUP),
    OpCode.FORGET_TOPIC: Need(MeshRight.ADMINISTER, _GROUP),
    OpCode.ACQUIRE_RECORDS: Need(MeshRight.SERVE, _GROUP),
    OpCode.ACKNOWLEDGE_RECORDS: Need(MeshRight.SERVE, _GROUP),
    OpCode.RELEASE_RECORDS: Need(MeshRight.SERVE, _GROUP),
    OpCode.DESCRIBE_SHARE_OFFSETS: Need(MeshRight.SERVE, _GROUP),
    OpCode.ALTER_SHARE_OFFSETS: Need(MeshRight.ADMINISTER, _GROUP),
    OpCode.CREATE_SHARE_GROUP: Need(MeshRight.ADMINISTER, _GROUP),
    OpCode.DELETE_SHARE_OFFSETS: Need(MeshRight.ADMINISTER, _GROUP),
    OpCode.FORGET_SHARE_TOPICS: Need(MeshRight.ADMINISTER, _GROUP),
    OpCode.SHARE_GROUP_TOPICS: Need(MeshRight.SERVE, _GROUP),
    OpCode.DESCRIBE_GROUP_CONFIGS: Need(MeshRight.SERVE, _GROUP),
    OpCode.LIST_GROUP_CONFIGS: Need(MeshRight.SERVE, _GROUP),
    OpCode.SHARE_GROUP_CONFIGS: Need(MeshRight.SERVE, _GROUP),
    OpCode.SHARE_HEARTBEAT: Need(MeshRight.SERVE, _GROUP),
    OpCode.DESCRIBE_SHARE_GROUPS: Need(MeshRight.SERVE, _GROUP),
    OpCode.PREVIOUS_DESCRIBE_SHARE_GROUPS: Need(MeshRight.SERVE, _GROUP),
    OpCode.ALTER_GROUP_CONFIGS: Need(MeshRight.ADMINISTER, _GROUP),
    # The answer has what concerns the orgs that the node may serve.
    OpCode.WATCH_SECURITY: Need(MeshRight.SERVE, _CLUSTER),
    OpCode.ALTER_USERS: Need(MeshRight.ADMINISTER, _CLUSTER),
    OpCode.CREATE_ACLS: Need(MeshRight.ADMINISTER, _CLUSTER),
    OpCode.DELETE_ACLS: Need(MeshRight.ADMINISTER, _CLUSTER),
    OpCode.ALTER_QUOTAS: Need(MeshRight.ADMINISTER, _CLUSTER),
    OpCode.ALTER_ORG: Need(MeshRight.ADMINISTER, _CLUSTER, every_org=True),
    # Topics of every org inherit these configs.
    OpCode.ALTER_BROKER_CONFIGS: Need(MeshRight.ADMINISTER, _CLUSTER, every_org=True),
    # The log's files hold every org's records side by side.
    OpCode.PIN_SNAPSHOT: Need(MeshRight.SNAPSHOT, _CLUSTER, every_org=True),
    OpCode.READ_PINNED: Need(MeshRight.SNAPSHOT, _CLUSTER, every_org=True),
    OpCode.UNPIN_SNAPSHOT: Need(MeshRight.SNAPSHOT, _CLUSTER, every_org=True),
    OpCode.PIN_ORG: Need(MeshRight.SNAPSHOT, _CLUSTER),
    OpCode.READ_ORG_PINNED: Need(MeshRight.SNAPSHOT, _CLUSTER),
    OpCode.UNPIN_ORG: Need(MeshRight.SNAPSHOT, _CLUSTER),
}
"""The need of each op. A test compares the table with the ops."""

FOR_EVERY_NODE = frozenset(
    {
        OpCode.OPEN_BULK,
        OpCode.OPEN_MEMORY,
        OpCode.OPEN_PIECES,
        OpCode.OPEN_SHARD,
        OpCode.CLUSTER_MAP,
    }
)
"""Ops without a need: they concern the connections of an allowed node, and no org."""
