"""Ops on topics, 0x05 to 0x07: delete, describe and create."""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_proto.schema.topics import CreatableTopicConfig


@wire_struct
class DeleteTopicResp(WireStruct):
    """The name and the id of the deleted topic."""

    topic: str
    topic_id: bytes = b""
    error_code: int = 0


@wire_struct
class DeleteTopic(Op[DeleteTopicResp]):
    """Delete one topic by name or, if `topic` is empty, by id."""

    code = OpCode.DELETE_TOPIC
    topic: str
    topic_id: bytes = b""


@wire_struct
class TopicDescription(WireStruct):
    """A topic as in Kafka's Metadata, or the error of the requested one.

    `leader_epoch`: the same for all partitions.
    """

    topic: str
    topic_id: bytes
    partitions: int
    error_code: int = 0
    leader_epoch: int = 0


@wire_struct
class DescribeTopicsResp(WireStruct):
    """The requested topics, in the order of the request; all topics, by name, if none were named.

    Attributes:
        version: the version of the org's topics, if all were requested; it differs after each
            change. Empty from brokers that do not have it.
        unchanged: the version is the op's `known`; no topics are listed.
        more: further topics follow the last one.
        created: the number of partitions of the topics that the op created.
    """

    cluster_id: str
    topics: list[TopicDescription]
    version: bytes = b""
    unchanged: bool = False
    more: bool = False
    created: int = 0


@wire_struct
class DescribeTopics(Op[DescribeTopicsResp]):
    """Describe topics by name and by id. `topics` None: all.

    `auto_create` creates the missing named topics if the broker's `auto.create.topics.enable`
    allows it, with at most `create_at_most` partitions in all (-1: no bound); further ones are
    answered with POLICY_VIOLATION.

    If all topics are requested, an answer has `at_most` of them (0: all), after the name `after`,
    and none if their version is `known`.
    """

    code = OpCode.DESCRIBE_TOPICS
    reads = True
    topics: list[str] | None = None
    topic_ids: list[bytes] | None = None
    auto_create: bool = False
    after: str = ""
    at_most: int = 0
    known: bytes = b""
    create_at_most: int = -1


@wire_struct
class DescribedConfig(WireStruct):
    """A config of a topic. `source`: Kafka's number for the origin of its value."""

    name: str
    value: str
    source: int


@wire_struct
class CreateTopicResp(WireStruct):
    """The created topic, or the error."""

    topic_id: bytes
    partitions: int
    error_code: int = 0
    error_message: str = ""
    configs: list[DescribedConfig] | None = None


@wire_struct
class CreateTopic(Op[CreateTopicResp]):
    """Create one topic. `partitions` -1: the broker's `num.partitions`."""

    code = OpCode.CREATE_TOPIC
    topic: str
    partitions: int = -1
    validate_only: bool = False
    configs: list[CreatableTopicConfig] | None = None


ALL: tuple[type[AnyOp], ...] = (
    DeleteTopic,
    DescribeTopics,
    CreateTopic,
)
