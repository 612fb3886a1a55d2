"""The kinds of partition sources of one broker, by the name in a topic."""

from __future__ import annotations

from quafka_broker.sources.source import PartitionSource, TopicSource
from quafka_broker.sources.wal import WalSource
from quafka_broker.topics.topic import Topic


class Sources:
    """Finds the partitions of topics."""

    def __init__(self, wal: WalSource) -> None:
        self._wal = wal
        self._others: dict[str, TopicSource] = {}

    def add(self, name: str, source: TopicSource) -> None:
        """Register the source of the topics whose `source` is this name."""
        self._others[name] = source

    def of(self, topic: Topic) -> TopicSource:
        """The source of a topic's partitions."""
        return self._others[topic.source] if topic.source else self._wal

    def partition(self, topic: Topic, number: int) -> PartitionSource:
        """A partition of the topic."""
        if topic.source:
            return self._others[topic.source].partition(topic, number)
        return self._wal.partition(topic, number)

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        """The last known log start and high watermark; both 0 if unknown."""
        if topic.source:
            found = self._others[topic.source].partition(topic, number)
            return max(0, found.log_start), max(0, found.high_watermark)
        return self._wal.log.offsets(topic.partition_id(number))
