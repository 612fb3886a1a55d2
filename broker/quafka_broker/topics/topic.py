"""Topics of the registry, the rule for topic names, and topics without their name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_proto.errors import ErrorCode

SOURCE = "quafka.source"
"""The topic config that names the store of the records, if it is not the log."""
WAL = ""
"""The source of topics whose partitions are in the log."""
REDIS = "redis"
"""The source of topics whose partitions are Redis streams."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def legal_name(name: str) -> bool:
    """Kafka's rule for topic names."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


ADOPTED = 1 << 31
"""Generations of adopted topics have this bit; those of the log's topics count from 0."""


class TopicIdentity(NamedTuple):
    """The unique identity of a new topic: its creation time, Kafka's id, and Quafka's."""

    created_ms: int
    uuid: bytes
    ulid: str


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic.

    Attributes:
        uuid: Kafka's topic id.
        ulid: Quafka's topic id, which sorts by creation time.
        slug: the topic's name in its RRL.
        generation: distinguishes successive topics of the same name.
        configs: the configs that the topic sets itself; see configs.py.
        source: the source of its partitions, empty for the log; see sources/sources.py.
    """

    org: int
    name: str
    uuid: bytes
    ulid: str
    slug: str
    generation: int
    partitions: int
    created_ms: int
    configs: dict[str, str] = field(default_factory=dict[str, str], hash=False)
    source: str = WAL

    def __post_init__(self) -> None:
        if not self.source and self.configs.get(SOURCE):
            object.__setattr__(self, "source", REDIS)

    def partition_id(self, partition: int) -> PartitionId:
        """The id of one partition."""
        return PartitionId(self.org, topic_hash(self.org, self.name), partition, self.generation)

    def has(self, partition: int) -> bool:
        """Whether the topic has this partition."""
        return 0 <= partition < self.partitions


class Unnamed(NamedTuple):
    """A topic of which only the records are left: the event that named it is lost to damage.

    The hash shows whether a name is the right one.
    """

    org: int
    hash: bytes
    generation: int

    def partition_id(self, partition: int) -> PartitionId:
        """The id of one partition."""
        return PartitionId(self.org, self.hash, partition, self.generation)


def unknown_topic(name: str, uuid: bytes) -> ErrorCode:
    """The error for a topic that does not exist, addressed by name or, without one, by id."""
    by_id = uuid and not name
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
