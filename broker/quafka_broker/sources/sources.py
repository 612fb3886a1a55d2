"""The kinds of partition sources of one broker, by the name that a topic gives."""

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
        """Serve the topics whose `source` is this name."""
        self._others[name] = source

    def of(self, topic: Topic) -> TopicSource:
        """Where the partitions of a topic come from."""
        return self._others[topic.source] if topic.source else self._wal

    def partition(self, topic: Topic, number: int) -> PartitionSource:
        """One partition, which the topic has."""
        if topic.source:
            return self._others[topic.source].partition(topic, number)
        return self._wal.partition(topic, number)

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        """Log start and high watermark as last known; both 0 where nothing is known."""
        if topic.source:
            found = self._others[topic.source].partition(topic, number)
            return max(0, found.log_start), max(0, found.high_watermark)
        return self._wal.log.offsets(topic.partition_id(number))
