"""Op 0x40, create partitions. A topic never shrinks: records would be lost."""

from __future__ import annotations

from dataclasses import replace

from quafka_broker.partitions.errors import StorageError
from quafka_broker.sources.source import BadSourceError
from quafka_broker.state import BrokerState
from quafka_broker.topics.org_topics import OrgFullError
from quafka_broker.topics.topic import Topic
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import CreatePartitions, CreatePartitionsResp
from quafka_proto.errors import ErrorCode


class _RefusedError(Exception):
    """The number of partitions, or their assignment, is refused."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_PARTITIONS) -> None:
        super().__init__(message)
        self.code = code


async def create(
    state: BrokerState, context: OpContext, op: CreatePartitions
) -> CreatePartitionsResp:
    """Add partitions to one topic."""
    unknown = CreatePartitionsResp(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {op.topic!r} does not exist"
    )
    topic = state.registry.by_name(context.org_id, op.topic)
    if topic is None:
        return unknown
    unchangeable = state.sources.of(topic).unchangeable(topic)
    if unchangeable:
        return CreatePartitionsResp(ErrorCode.POLICY_VIOLATION, unchangeable)

    def grow(present: Topic) -> Topic:
        return _grown(state, present, op)

    try:
        if op.validate_only:
            grow(topic)
        elif not await state.topics.change(topic, grow):
            return unknown
    except _RefusedError as e:
        return CreatePartitionsResp(e.code, str(e))
    except OrgFullError as e:
        return CreatePartitionsResp(ErrorCode.POLICY_VIOLATION, str(e))
    except StorageError as e:
        return CreatePartitionsResp(ErrorCode.KAFKA_STORAGE_ERROR, str(e))
    return CreatePartitionsResp()


def _grown(state: BrokerState, present: Topic, op: CreatePartitions) -> Topic:
    """The topic with its new partitions. Raises _RefusedError or OrgFullError."""
    if op.count <= present.partitions:
        raise _RefusedError(
            f"topic {op.topic!r} has {present.partitions} partitions; {op.count} is not more"
        )
    added = op.count - present.partitions
    if op.assigned not in (-1, added):
        raise _RefusedError(
            f"{added} partitions would be added, but {op.assigned} are assigned",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    most = state.configs.broker.max_partitions_per_topic
    if op.count > most:
        raise _RefusedError(f"{op.count} partitions: max.partitions.per.topic={most}")
    try:
        state.redis.check(present.org, op.count, present.configs)
    except BadSourceError as e:
        raise _RefusedError(str(e)) from e
    org = state.registry.org(present.org)
    org.check_room(added, state.room(present.org))
    return replace(present, partitions=op.count)
