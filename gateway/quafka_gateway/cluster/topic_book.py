"""The topics that the gateway has seen at each broker.

Kafka's newer requests name a topic by its id alone, which no route table can route: the book knows
the id's broker from earlier descriptions. The topics of an unavailable broker stay in the book:
clients that list topics must not take them for deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.topics import TopicDescription

_TOPICS_PER_SLICE = 1_000


class TopicBook:
    """Topics by broker number, name and id."""

    def __init__(self, brokers: int) -> None:
        self._by_name: list[dict[str, TopicDescription]] = [{} for _ in range(brokers)]
        self._by_id: list[dict[bytes, TopicDescription]] = [{} for _ in range(brokers)]

    def broker_of(self, topic_id: bytes) -> int | None:
        """The broker that has the topic with this id, if the book has it."""
        return next((b for b, topics in enumerate(self._by_id) if topic_id in topics), None)

    def by_id(self, topic_id: bytes) -> TopicDescription | None:
        """The topic with this id, if the book has it."""
        broker = self.broker_of(topic_id)
        return None if broker is None else self._by_id[broker][topic_id]

    def named(self, broker: int, name: str) -> TopicDescription | None:
        """A broker's topic with this name, if the book has it."""
        return self._by_name[broker].get(name)

    def all_of(self, broker: int) -> list[TopicDescription]:
        """All topics of a broker."""
        return list(self._by_name[broker].values())

    def add(self, broker: int, topic: TopicDescription) -> None:
        """The broker has this topic. An earlier topic with the same name is gone."""
        self.remove(broker, topic.topic)
        self._by_name[broker][topic.topic] = topic
        self._by_id[broker][topic.topic_id] = topic

    async def replace(self, broker: int, topics: Iterable[TopicDescription]) -> None:
        """The broker has these topics and no others.

        Yields to other tasks while it reads the topics; they see the change as a whole.
        """
        by_name: dict[str, TopicDescription] = {}
        by_id: dict[bytes, TopicDescription] = {}
        slices = Slices(_TOPICS_PER_SLICE)
        for topic in topics:
            by_name[topic.topic] = by_id[topic.topic_id] = topic
            await slices.done()
        self._by_name[broker], self._by_id[broker] = by_name, by_id

    def remove(self, broker: int, name: str) -> None:
        """The broker has no topic with this name."""
        known = self._by_name[broker].pop(name, None)
        if known is not None:
            self._by_id[broker].pop(known.topic_id, None)

    def remove_id(self, broker: int, topic_id: bytes) -> None:
        """The broker has no topic with this id."""
        known = self._by_id[broker].get(topic_id)
        if known is not None:
            self.remove(broker, known.topic)
