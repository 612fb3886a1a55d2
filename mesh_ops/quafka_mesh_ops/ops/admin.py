"""Ops of administrators, 0x40 to 0x46: describe and change topics, configs and brokers.

The sources, types and operations of configs are Kafka's numbers (`config_kinds`).
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_proto.schema.configs import DescribeConfigsSynonym, IncrementalAlterableConfig
from quafka_proto.schema.quafka import PartitionCompaction

# --- CreatePartitions 0x40 ------------------------------------------------------------------


@wire_struct
class CreatePartitionsResp(WireStruct):
    """The result."""

    error_code: int = 0
    error_message: str = ""


@wire_struct
class CreatePartitions(Op[CreatePartitionsResp]):
    """Extend a topic to `count` partitions. Durable once it is answered.

    `assigned`: the number of new partitions that the client assigned by hand; -1: the broker
    assigns all.
    """

    code = OpCode.CREATE_PARTITIONS
    topic: str
    count: int
    validate_only: bool = False
    assigned: int = -1


# --- configs 0x41 to 0x43, 0x46 ----------------------------------------------------------------


@wire_struct
class ConfigDescription(WireStruct):
    """A config, as Kafka describes one. `synonyms`: in order of precedence."""

    name: str
    value: str | None
    source: int
    config_type: int
    read_only: bool
    documentation: str
    synonyms: list[DescribeConfigsSynonym]
    sensitive: bool = False


@wire_struct
class NamedValue(WireStruct):
    """A named value."""

    name: str
    value: str


@wire_struct
class TopicConfigs(WireStruct):
    """The differences of a topic from `defaults`: its own configs, and the read-only ones."""

    error_code: int = 0
    error_message: str = ""
    own: list[NamedValue] | None = None
    fixed: list[NamedValue] | None = None


@wire_struct
class DescribeTopicConfigsResp(WireStruct):
    """The configs of a topic that sets none, and one answer per topic, in the request's order."""

    defaults: list[ConfigDescription]
    topics: list[TopicConfigs]


@wire_struct
class DescribeTopicConfigs(Op[DescribeTopicConfigsResp]):
    """Describe the configs of topics."""

    code = OpCode.DESCRIBE_TOPIC_CONFIGS
    reads = True
    topics: list[str]


@wire_struct
class AlterTopicConfigsResp(WireStruct):
    """The result."""

    error_code: int = 0
    error_message: str = ""


@wire_struct
class AlterTopicConfigs(Op[AlterTopicConfigsResp]):
    """Change a topic's configs, all or none. Durable and in effect once it is answered.

    `replace`: configs of the topic that the changes do not name are deleted.
    """

    code = OpCode.ALTER_TOPIC_CONFIGS
    topic: str
    changes: list[IncrementalAlterableConfig]
    replace: bool = False
    validate_only: bool = False


@wire_struct
class DescribeBrokerResp(WireStruct):
    """The broker's settings, the offsets of its topic registry, and its leader epoch."""

    cluster_id: str
    settings: list[ConfigDescription]
    registry_start: int = 0
    registry_end: int = 0
    leader_epoch: int = 0


@wire_struct
class DescribeBroker(Op[DescribeBrokerResp]):
    """Describe the broker."""

    code = OpCode.DESCRIBE_BROKER
    reads = True


@wire_struct
class AlterBrokerConfigsResp(WireStruct):
    """The result."""

    error_code: int = 0
    error_message: str = ""


@wire_struct
class AlterBrokerConfigs(Op[AlterBrokerConfigsResp]):
    """Change the configs that topics of every org inherit, all or none. Durable once answered.

    `this_broker`: change the broker's own configs, which precede the cluster-wide defaults.
    `replace`: as for topics.
    """

    code = OpCode.ALTER_BROKER_CONFIGS
    changes: list[IncrementalAlterableConfig]
    this_broker: bool = False
    replace: bool = False
    validate_only: bool = False


# --- partitions on disk, and their producers 0x44, 0x45 -------------------------------------


@wire_struct
class PartitionsByTopic(WireStruct):
    """Some partitions of a topic."""

    topic: str
    partitions: list[int]


@wire_struct
class PartitionSizes(WireStruct):
    """The bytes of record batches in each partition. `sizes` has one item per partition."""

    topic: str
    partitions: list[int]
    sizes: list[int]


@wire_struct
class DescribeLogDirResp(WireStruct):
    """The folder of the log, its file system, and the sizes of partitions."""

    path: str
    total_bytes: int
    usable_bytes: int
    topics: list[PartitionSizes]
    error_code: int = 0


@wire_struct
class DescribeLogDir(Op[DescribeLogDirResp]):
    """Request the sizes of partitions. `topics` None: all; missing partitions are left out."""

    code = OpCode.DESCRIBE_LOG_DIR
    reads = True
    topics: list[PartitionsByTopic] | None = None


@wire_struct
class PartitionOp(WireStruct):
    """One partition."""

    topic: str
    partition: int


@wire_struct
class ActiveProducer(WireStruct):
    """The state of an idempotent producer in a partition, from its last batch.

    `transaction_start`: the first offset of its open transaction; -1: none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int = -1


@wire_struct
class PartitionProducers(WireStruct):
    """The producers of one partition."""

    producers: list[ActiveProducer]
    error_code: int = 0


@wire_struct
class DescribeProducersOpsResp(WireStruct):
    """One answer per PartitionOp, in the order of the request."""

    partitions: list[PartitionProducers]


@wire_struct
class DescribeProducersOps(Op[DescribeProducersOpsResp]):
    """One Kafka DescribeProducers request."""

    code = OpCode.DESCRIBE_PRODUCERS
    reads = True
    partitions: list[PartitionOp]


@wire_struct
class DescribeCompactionResp(WireStruct):
    """All partitions of a topic; none if the topic is not compacted."""

    partitions: list[PartitionCompaction]
    error_code: int = 0


@wire_struct
class DescribeCompaction(Op[DescribeCompactionResp]):
    """Request the state of a topic's compaction."""

    code = OpCode.DESCRIBE_COMPACTION
    reads = True
    topic: str


ALL: tuple[type[AnyOp], ...] = (
    CreatePartitions,
    DescribeTopicConfigs,
    AlterTopicConfigs,
    AlterBrokerConfigs,
    DescribeBroker,
    DescribeLogDir,
    DescribeProducersOps,
    DescribeCompaction,
)
