"""What a node may do at a broker: the rights, and which of them each op needs.

`NEEDS` is the only place that decides: the mesh server looks an op up here after its envelope is
read and before its body is. An op code that is missing from the table is refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from quafka_mesh_ops.ops.base import OpCode
from quafka_proto.errors import ErrorCode


class Right(StrEnum):
    """What `may=` lists on an allow-list.

    - serve: what Kafka clients need every day: produce, fetch, groups, descriptions.
    - administer: create, change and delete topics, records, groups and their offsets.
    - snapshot: pin and read the log.
    """

    SERVE = "serve"
    ADMINISTER = "administer"
    SNAPSHOT = "snapshot"


class Need(NamedTuple):
    """What an op needs: a right in the envelope's org, or in every org.

    `refusal` is the Kafka error code of the answer where the node lacks it: the one that Kafka
    gives a client without the ACL, so that clients report it and do not retry.
    """

    right: Right
    refusal: ErrorCode
    every_org: bool = False


_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

NEEDS: dict[int, Need] = {
    OpCode.PRODUCE: Need(Right.SERVE, _TOPIC),
    OpCode.FETCH: Need(Right.SERVE, _TOPIC),
    OpCode.LIST_OFFSETS: Need(Right.SERVE, _TOPIC),
    OpCode.EPOCH_ENDS: Need(Right.SERVE, _TOPIC),
    OpCode.DESCRIBE_TOPICS: Need(Right.SERVE, _TOPIC),  # also with auto_create
    OpCode.DESCRIBE_TOPIC_CONFIGS: Need(Right.SERVE, _TOPIC),
    OpCode.DESCRIBE_PRODUCERS: Need(Right.SERVE, _TOPIC),
    OpCode.INIT_PRODUCER_ID: Need(Right.SERVE, _CLUSTER),
    OpCode.HOLD_LEASE: Need(Right.SERVE, _CLUSTER),
    OpCode.PROBE: Need(Right.SERVE, _CLUSTER),
    OpCode.DESCRIBE_BROKER: Need(Right.SERVE, _CLUSTER),
    OpCode.DESCRIBE_LOG_DIR: Need(Right.SERVE, _CLUSTER),
    OpCode.JOIN_GROUP: Need(Right.SERVE, _GROUP),
    OpCode.SYNC_GROUP: Need(Right.SERVE, _GROUP),
    OpCode.HEARTBEAT: Need(Right.SERVE, _GROUP),
    OpCode.LEAVE_GROUP: Need(Right.SERVE, _GROUP),
    OpCode.COMMIT_OFFSETS: Need(Right.SERVE, _GROUP),
    OpCode.COMMITTED_OFFSETS: Need(Right.SERVE, _GROUP),
    OpCode.LIST_GROUPS: Need(Right.SERVE, _GROUP),
    OpCode.DESCRIBE_GROUPS: Need(Right.SERVE, _GROUP),
    OpCode.GROUP_LAG: Need(Right.SERVE, _GROUP),
    OpCode.LAG_OF_OFFSETS: Need(Right.SERVE, _GROUP),
    OpCode.CREATE_TOPIC: Need(Right.ADMINISTER, _TOPIC),
    OpCode.DELETE_TOPIC: Need(Right.ADMINISTER, _TOPIC),
    OpCode.CREATE_PARTITIONS: Need(Right.ADMINISTER, _TOPIC),
    OpCode.ALTER_TOPIC_CONFIGS: Need(Right.ADMINISTER, _TOPIC),
    OpCode.DELETE_RECORDS: Need(Right.ADMINISTER, _TOPIC),
    OpCode.DELETE_OFFSETS: Need(Right.ADMINISTER, _GROUP),
    OpCode.DELETE_GROUPS: Need(Right.ADMINISTER, _GROUP),
    OpCode.FORGET_TOPIC: Need(Right.ADMINISTER, _GROUP),
    # Topics of every org inherit them.
    OpCode.ALTER_BROKER_CONFIGS: Need(Right.ADMINISTER, _CLUSTER, every_org=True),
    # The log's files hold every org's records side by side.
    OpCode.PIN_SNAPSHOT: Need(Right.SNAPSHOT, _CLUSTER, every_org=True),
    OpCode.READ_PINNED: Need(Right.SNAPSHOT, _CLUSTER, every_org=True),
    OpCode.UNPIN_SNAPSHOT: Need(Right.SNAPSHOT, _CLUSTER, every_org=True),
    OpCode.PIN_ORG: Need(Right.SNAPSHOT, _CLUSTER),
    OpCode.READ_ORG_PINNED: Need(Right.SNAPSHOT, _CLUSTER),
    OpCode.UNPIN_ORG: Need(Right.SNAPSHOT, _CLUSTER),
}
"""What each op needs. A test compares it with the ops that there are."""
