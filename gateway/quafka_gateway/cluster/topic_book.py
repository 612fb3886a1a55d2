"""What the gateway has learned of its brokers' topics.

Kafka's newer requests name a topic by its id alone, which no route table can route: the id's
broker is known from the descriptions that have passed. And a broker that is away still has its
topics: clients that list topics must not take them for deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from quafka_mesh_ops.ops.topics import TopicDescription
from quafka_telemetry.slices import Slices

_TOPICS_PER_SLICE = 1_000


class TopicBook:
    """Topics by broker number."""

    def __init__(self, brokers: int) -> None:
        self._by_name: list[dict[str, TopicDescription]] = [{} for _ in range(brokers)]
        self._by_id: list[dict[bytes, TopicDescription]] = [{} for _ in range(brokers)]

    def broker_of(self, topic_id: bytes) -> int | None:
        """The broker that has the topic with this id, if it is known."""
        return next((b for b, topics in enumerate(self._by_id) if topic_id in topics), None)

    def by_id(self, topic_id: bytes) -> TopicDescription | None:
        """What is known of the topic with this id."""
        broker = self.broker_of(topic_id)
        return None if broker is None else self._by_id[broker][topic_id]

    def named(self, broker: int, name: str) -> TopicDescription | None:
        """What is known of a broker's topic."""
        return self._by_name[broker].get(name)

    def every(self, broker: int) -> list[TopicDescription]:
        """All that are known of a broker."""
        return list(self._by_name[broker].values())

    def learn(self, broker: int, topic: TopicDescription) -> None:
        """The broker has this topic, in place of any of the same name."""
        self.forget(broker, topic.topic)
        self._by_name[broker][topic.topic] = topic
        self._by_id[broker][topic.topic_id] = topic

    async def learn_all(self, broker: int, topics: Iterable[TopicDescription]) -> None:
        """The broker has these topics and no other. Lets others run; they see all of it at once."""
        by_name: dict[str, TopicDescription] = {}
        by_id: dict[bytes, TopicDescription] = {}
        slices = Slices(_TOPICS_PER_SLICE)
        for topic in topics:
            by_name[topic.topic] = by_id[topic.topic_id] = topic
            await slices.done()
        self._by_name[broker], self._by_id[broker] = by_name, by_id

    def forget(self, broker: int, name: str) -> None:
        """The broker does not have a topic of this name."""
        known = self._by_name[broker].pop(name, None)
        if known is not None:
            self._by_id[broker].pop(known.topic_id, None)

    def forget_id(self, broker: int, topic_id: bytes) -> None:
        """The broker does not have a topic of this id."""
        known = self._by_id[broker].get(topic_id)
        if known is not None:
            self.forget(broker, known.topic)
