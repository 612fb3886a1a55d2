"""Ops on topics, 0x05 to 0x07: delete, describe and create."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct


@dataclass(frozen=True, slots=True)
class DeleteTopicResp(WireStruct):
    """The deleted topic, named both ways."""

    topic: str
    topic_id: bytes = b""
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopic(Op[DeleteTopicResp]):
    """Delete one topic, by name or, where `topic` is empty, by id."""

    code = OpCode.DELETE_TOPIC
    topic: str
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class TopicDescription(WireStruct):
    """A topic as Kafka's Metadata shows it, or the error for the one that was asked for.

    `leader_epoch`: of all its partitions.
    """

    topic: str
    topic_id: bytes
    partitions: int
    error_code: int = 0
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTopicsResp(WireStruct):
    """The topics asked for, in the order asked; all of them, by name, where all were asked.

    Attributes:
        version: of the org's topics, where all were asked; another one after each change. Empty
            from brokers that do not have it.
        unchanged: the version is the one that the op knows: no topics are listed.
        more: topics follow behind the last one.
        created: partitions of the topics that the op created.
    """

    cluster_id: str
    topics: list[TopicDescription]
    version: bytes = b""
    unchanged: bool = False
    more: bool = False
    created: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTopics(Op[DescribeTopicsResp]):
    """Describe topics by name and by id. `topics` None: all.

    `auto_create` makes the named ones that are missing, where the broker's
    `auto.create.topics.enable` allows it, with at most `create_at_most` partitions in all (-1: no
    bound); further ones are answered POLICY_VIOLATION.

    Where all are asked for, `at_most` of them come at a time (0: all at once), those behind the
    name `after`; none where their version is `known`.
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


@dataclass(frozen=True, slots=True)
class ConfigEntry(WireStruct):
    """A config that a client wants to set. `value` None: nothing was given."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class EffectiveConfig(WireStruct):
    """A config of a topic. `source`: Kafka's number for where its value comes from."""

    name: str
    value: str
    source: int


@dataclass(frozen=True, slots=True)
class CreateTopicResp(WireStruct):
    """The created topic, or why it was not."""

    topic_id: bytes
    partitions: int
    error_code: int = 0
    error_message: str = ""
    configs: list[EffectiveConfig] | None = None


@dataclass(frozen=True, slots=True)
class CreateTopic(Op[CreateTopicResp]):
    """Create one topic. `partitions` -1: the broker's `num.partitions`."""

    code = OpCode.CREATE_TOPIC
    topic: str
    partitions: int = -1
    validate_only: bool = False
    configs: list[ConfigEntry] | None = None


ALL: tuple[type[AnyOp], ...] = (
    DeleteTopic,
    DescribeTopics,
    CreateTopic,
)
