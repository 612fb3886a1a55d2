"""Ops 0x05 to 0x07: delete, describe and create topics."""

from __future__ import annotations

from quafka_broker.partitions.errors import StorageError
from quafka_broker.sources.source import BadSourceError
from quafka_broker.state import BrokerState
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics.org_topics import CollidingNameError, OrgFullError
from quafka_broker.topics.topic import Topic, legal_name, unknown_topic
from quafka_loop.slices import Slices
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.topics import (
    CreateTopic,
    CreateTopicResp,
    DeleteTopic,
    DeleteTopicResp,
    DescribedConfig,
    DescribeTopics,
    DescribeTopicsResp,
    TopicDescription,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.topics import CreatableTopicConfig
from quafka_telemetry import semconv

_TOPICS_PER_SLICE = 500


async def delete(state: BrokerState, context: OpContext, op: DeleteTopic) -> DeleteTopicResp:
    """Delete one topic. Its records are no longer served."""
    topic = state.registry.find(context.org_id, op.topic, op.topic_id)
    if topic is None:
        return DeleteTopicResp(op.topic, op.topic_id, unknown_topic(op.topic, op.topic_id))
    if state.sources.of(topic).unchangeable(topic):
        return DeleteTopicResp(topic.name, topic.uuid, ErrorCode.POLICY_VIOLATION)
    try:
        with context.tracer.start(semconv.COMMIT, context.trace):
            done = await state.topics.delete(topic)
    except StorageError:
        return DeleteTopicResp(topic.name, topic.uuid, ErrorCode.KAFKA_STORAGE_ERROR)
    gone = ErrorCode.NONE if done else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DeleteTopicResp(topic.name, topic.uuid, gone)


async def describe(
    state: BrokerState, context: OpContext, op: DescribeTopics
) -> DescribeTopicsResp:
    """Describe topics; create missing topics by name if the op and the settings allow it."""
    org = context.org_id
    cluster = state.registry.cluster_id
    if op.topics is None and not op.topic_ids:
        return _every(state, org, op)
    create = op.auto_create and state.configs.broker.auto_create_topics_enable
    slices = Slices(_TOPICS_PER_SLICE)
    found: list[TopicDescription] = []
    created = 0
    for name in op.topics or []:
        left = op.create_at_most - created if op.create_at_most >= 0 else None
        described, its = await _named(state, org, name, create, left)
        found.append(described)
        created += its
        await slices.done()
    for uuid in op.topic_ids or []:
        await slices.done()
        topic = state.registry.by_id(org, uuid)
        missing = TopicDescription("", uuid, 0, ErrorCode.UNKNOWN_TOPIC_ID)
        found.append(_description(state, topic) if topic else missing)
    return DescribeTopicsResp(cluster, found, created=created)


def _every(state: BrokerState, org: int, op: DescribeTopics) -> DescribeTopicsResp:
    registry = state.registry
    topics = registry.org(org)
    version = topics.version
    if op.known == version:
        return DescribeTopicsResp(registry.cluster_id, [], version, unchanged=True)
    names, more = topics.after(op.after, op.at_most if op.at_most > 0 else len(topics))
    found = [t for n in names if (t := registry.by_name(org, n)) is not None]
    every = [_description(state, topic) for topic in found]
    return DescribeTopicsResp(registry.cluster_id, every, version, more=more)


async def create(state: BrokerState, context: OpContext, op: CreateTopic) -> CreateTopicResp:
    """Create one topic; the answer has its configs."""
    partitions = state.configs.broker.num_partitions if op.partitions == -1 else op.partitions
    refusal = _refusal(state, context.org_id, op.topic, partitions)
    if refusal is not None:
        return refusal
    try:
        configs = _configs(op.configs or [])
        topic_configs.check_together(state.configs.broker, configs)
        state.redis.check(context.org_id, partitions, configs)
    except (topic_configs.ConfigError, BadSourceError) as e:
        return CreateTopicResp(b"", -1, ErrorCode.INVALID_CONFIG, str(e))
    uuid = b""
    if not op.validate_only:
        try:
            with context.tracer.start(semconv.COMMIT, context.trace):
                topic, is_new = await state.topics.create(
                    context.org_id, op.topic, partitions, configs
                )
        except (CollidingNameError, OrgFullError) as e:
            return _refused(e)
        except StorageError as e:
            return CreateTopicResp(b"", -1, ErrorCode.KAFKA_STORAGE_ERROR, str(e))
        if not is_new:
            return _exists(op.topic)
        uuid = topic.uuid
    shown = topic_configs.effective(state.configs.broker, configs, state.configs.dynamic)
    return CreateTopicResp(uuid, partitions, configs=[DescribedConfig(*c) for c in shown])


def _configs(entries: list[CreatableTopicConfig]) -> dict[str, str]:
    given: dict[str, str | None] = {}
    for entry in entries:
        if entry.name in given:
            raise topic_configs.ConfigError(f"{entry.name} is set twice")
        given[entry.name] = entry.value
    return topic_configs.check(given)


def _refusal(state: BrokerState, org: int, name: str, partitions: int) -> CreateTopicResp | None:
    if not legal_name(name):
        message = "a topic name is 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'; not '.' or '..'"
        return CreateTopicResp(b"", -1, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    most = state.configs.broker.max_partitions_per_topic
    if not 1 <= partitions <= most:
        message = f"{partitions} partitions: allowed are 1 to max.partitions.per.topic={most}"
        return CreateTopicResp(b"", -1, ErrorCode.INVALID_PARTITIONS, message)
    if state.registry.by_name(org, name) is not None:
        return _exists(name)
    try:
        state.registry.org(org).check_name(name)
        state.registry.org(org).check_room(partitions, state.room(org), topics=1)
    except (CollidingNameError, OrgFullError) as e:
        return _refused(e)
    return None


def _refused(error: CollidingNameError | OrgFullError) -> CreateTopicResp:
    return CreateTopicResp(b"", -1, _code_of(error), str(error))


def _code_of(error: CollidingNameError | OrgFullError) -> ErrorCode:
    collides = isinstance(error, CollidingNameError)
    return ErrorCode.INVALID_TOPIC_EXCEPTION if collides else ErrorCode.POLICY_VIOLATION


def _exists(name: str) -> CreateTopicResp:
    return CreateTopicResp(b"", -1, ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")


async def _named(
    state: BrokerState, org: int, name: str, create: bool, at_most: int | None
) -> tuple[TopicDescription, int]:
    """A topic's description, and the number of partitions created for it."""
    missing = _missing(state, org, name, create, at_most)
    if missing is not None:
        return missing, 0
    partitions = state.configs.broker.num_partitions
    try:
        topic, is_new = await state.topics.create(org, name, partitions)
    except (CollidingNameError, OrgFullError) as e:
        return TopicDescription(name, b"", 0, _code_of(e)), 0
    except StorageError:
        return TopicDescription(name, b"", 0, ErrorCode.LEADER_NOT_AVAILABLE), 0
    return _description(state, topic), partitions if is_new else 0


def _missing(
    state: BrokerState, org: int, name: str, create: bool, at_most: int | None
) -> TopicDescription | None:
    """The answer for a topic that exists or cannot be created; None: create it."""
    topic = state.registry.by_name(org, name)
    if topic is not None:
        return _description(state, topic)
    if not legal_name(name):
        return TopicDescription(name, b"", 0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    is_new = state.registry.unnamed_of(org, name) is None
    if is_new and (not create or state.topics.tells_of_deletion(org, name)):
        return TopicDescription(name, b"", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if create and at_most is not None and at_most < state.configs.broker.num_partitions:
        return TopicDescription(name, b"", 0, ErrorCode.POLICY_VIOLATION)
    return None


def _description(state: BrokerState, topic: Topic) -> TopicDescription:
    epoch = state.sources.of(topic).leader_epoch
    return TopicDescription(topic.name, topic.uuid, topic.partitions, leader_epoch=epoch)
