"""The kinds of partition sources of one broker, by the name in a topic."""

from __future__ import annotations

from quafka_broker.sources.source import PartitionSource, TopicSource
from quafka_broker.topics.topic import Topic


class Sources:
    """Finds the partitions of topics."""

    def __init__(self) -> None:
        self._sources: dict[str, TopicSource] = {}

    def add(self, name: str, source: TopicSource) -> None:
        """Register the source of the topics whose `source` is this name."""
        self._sources[name] = source

    def of(self, topic: Topic) -> TopicSource:
        """The source of a topic's partitions."""
        return self._sources[topic.source]

    def partition(self, topic: Topic, number: int) -> PartitionSource:
        """A partition of the topic."""
        return self._sources[topic.source].partition(topic, number)

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        """See `TopicSource`."""
        return self._sources[topic.source].bounds(topic, number)
